"""Philox4x32-10 against the published known answers, and the exact scaling of its words."""

import pytest
import torch

from yaie_kernels.philox import philox, philox_words, scaled, targets


def signed(high: int, low: int) -> torch.Tensor:
    value = (high << 32) | low
    return torch.tensor([value - 2**64 if value >= 2**63 else value])


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers_of_random123(
    counter: tuple[int, ...], key: tuple[int, int], answer: tuple[int, ...]
) -> None:
    seed, position = signed(counter[1], counter[0]), signed(counter[3], counter[2])
    assert tuple(philox(seed, position, key)[:, 0].tolist()) == answer
    assert philox_words(int(seed), int(position), key) == answer


def test_a_row_does_not_depend_on_its_batch() -> None:
    seed, position = torch.randint(-(2**62), 2**62, (2, 33))
    together = philox(seed, position)
    for row in range(33):
        assert torch.equal(together[:, row : row + 1], philox(seed[[row]], position[[row]]))


@pytest.mark.parametrize("total", [1, 2, 12345, 2**40, 2**58 - 1])
def test_scaling_is_the_exact_floor(total: int) -> None:
    words = torch.randint(0, 2**32, (4, 200))
    words[:, 0], words[:, 1] = 0, 2**32 - 1
    got = scaled(words, torch.full((200,), total))
    for column, value in enumerate(got.tolist()):
        r = (int(words[0, column]) >> 1) * 2**31 + (int(words[1, column]) >> 1)
        assert value == r * total // 2**62
        assert 0 <= value < total


def test_few_rows_and_many_rows_draw_alike() -> None:
    seed, position = torch.randint(-(2**62), 2**62, (2, 50))
    total = torch.randint(1, 2**58, (50,))
    many = targets(seed, position, total)
    few = [targets(seed[row : row + 5], position[row : row + 5], total[row : row + 5])
           for row in range(0, 50, 5)]  # fmt: skip
    assert torch.equal(torch.cat(few), many)
