"""The command line, the model folders and the search for the saturating rate."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from bench.programs import online, summary


def server(capacity: float) -> tuple[list[float], Callable[[float], summary.Summary]]:
    """A server that ends `capacity` requests/s at most; and the rates that it was offered."""
    offered: list[float] = []

    def measure(rate: float) -> summary.Summary:
        offered.append(rate)
        ended = round(10 * min(rate, capacity))
        return summary.Summary(
            "", rate, round(10 * rate), ended, [], 10.0, [], [], [], [], [], 1.0, 0
        )

    return offered, measure


def test_overload_doubles_until_nothing_is_gained_and_then_offers_twice_the_most() -> None:
    offered, measure = server(capacity=45.0)

    online.overload(10.0, measure(10.0), measure)

    assert offered == [10.0, 20.0, 40.0, 80.0, 90.0]


def test_overload_gives_up_where_no_rate_saturates() -> None:
    offered, measure = server(capacity=1e9)

    online.overload(1.0, measure(1.0), measure)

    assert offered == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]


def test_overload_of_a_server_that_ends_nothing_is_an_error() -> None:
    _, measure = server(capacity=0.0)

    with pytest.raises(SystemExit, match="no request ended well"):
        online.overload(1.0, measure(1.0), measure)


def test_the_flags_have_the_values_that_peers_were_measured_with() -> None:
    options = online.parse(["run", "http://host", "m", "--rates", "20,60", "--seconds", "15"])

    assert (options.rates, options.inp, options.out) == ([20.0, 60.0], (200, 800), (100, 300))
    assert (options.big_every, options.seed, options.vocab) == (4, 5, 100_000)
    assert (options.procs, options.grace, options.no_warm, options.repeat) == (4, 40, False, 1)


@pytest.mark.parametrize("wrong", ["vllm", "=http://host", "vllm="])
def test_a_peer_needs_a_name_and_a_url(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        online.parse(["run", "http://host", "m", "--peer", wrong])

    assert "NAME=URL is wanted" in capsys.readouterr().err


def test_the_tokenizer_has_a_text_for_every_id(tmp_path: Path) -> None:
    online.write_tokenizer(tmp_path, 1000)

    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 1000
    assert tokenizer.decode([999]) == f" w{999:x}"
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["eos_token"] == "\u0120w200"


def test_a_file_of_lines_becomes_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = {
        "label": "demo", "rate": 2.0, "requests": 3, "ended_well": 3, "errors": [], "seconds": 2.0,
        "ttft_ms_p50_p99": [1.0, 2.0], "ttft_8k_ms_p50_max": [None, None],
        "gap_ms_p50_p99_p999": [1.0, 2.0, 3.0], "tpot_ms_p50_p99": [1.0, 2.0],
        "client_lag_ms_p99": [1.0], "chunks_per_token": 1.0, "out_tok_s": 30,
    }  # fmt: skip
    again = {"label": "demo", "rate": 2.0, "first_over_last": {"ttft_p99": 1.5, "gap_p999": None}}
    lines = tmp_path / "lines"
    lines.write_text("\n".join(["# a note", json.dumps(figures), json.dumps(again)]))

    options = online.parse(["table", str(lines)])
    options.do(options)

    printed = capsys.readouterr().out
    assert "| demo 2/s | 1.00 | 2.00 | - | 1.00 | 2.00 | 3.00 | 1.00 | 2.00 | 30.0 | 3/3 | - |" in (
        printed
    )
    assert "demo 2/s: first over last time: ttft_p99 1.50, gap_p999 -" in printed
