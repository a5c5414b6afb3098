import asyncio
import os
from pathlib import Path

import pytest

from yaie_local.logfile import Follower, LogFile, follow, older, prune, tail


def test_the_file_turns_over_at_its_size_and_one_older_part_stays(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    log = LogFile(path, max_bytes=10)
    for line in (b"one..\n", b"two..\n", b"three\n"):
        log.write(line)
    log.close()
    assert path.read_bytes() == b"three\n"
    assert older(path).read_bytes() == b"two..\n"


def test_a_restart_appends(tmp_path: Path) -> None:
    for word in (b"a\n", b"b\n"):
        log = LogFile(tmp_path / "p.log")
        log.write(word)
        log.close()
    assert tail(tmp_path / "p.log", None) == b"a\nb\n"


@pytest.mark.parametrize(
    ("lines", "text"), [(None, b"1\n2\n3"), (2, b"2\n3"), (0, b""), (9, b"1\n2\n3")]
)
def test_tail_counts_lines_from_the_end(tmp_path: Path, lines: int | None, text: bytes) -> None:
    (tmp_path / "p.log").write_bytes(b"1\n2\n3")
    assert tail(tmp_path / "p.log", lines) == text


def test_tail_reaches_into_the_older_part(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    path.write_bytes(b"3\n")
    older(path).write_bytes(b"1\n2\n")
    assert tail(path, 2) == b"2\n3\n"


def test_pruning_keeps_the_files_written_last(tmp_path: Path) -> None:
    for n in range(4):
        path = tmp_path / f"{n}.log"
        path.touch()
        os.utime(path, (n, n))
    prune(tmp_path, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["2.log", "3.log"]


async def test_following_crosses_a_turn_over(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    log = LogFile(path, max_bytes=12)
    log.write(b"before\n")
    follower = Follower(path)
    log.write(b"a\n")
    log.write(b"bbbbbbbb\n")
    log.write(b"c\n")
    found = b""
    async for part in follow(follower):
        found += part
        if found.endswith(b"c\n"):
            break
    log.close()
    assert found == b"a\nbbbbbbbb\nc\n"


async def test_a_follower_that_was_overtaken_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    path.write_bytes(b"a long first line\n")
    follower = Follower(path)
    path.write_bytes(b"new\n")
    assert follower.read() == b"new\n"


async def test_a_file_that_comes_later_is_followed_from_its_start(tmp_path: Path) -> None:
    parts = follow(Follower(tmp_path / "p.log"))
    first = asyncio.ensure_future(anext(parts))
    await asyncio.sleep(0)
    log = LogFile(tmp_path / "p.log")
    log.write(b"a\n")
    assert await asyncio.wait_for(first, 5) == b"a\n"
    await parts.aclose()
    log.close()
