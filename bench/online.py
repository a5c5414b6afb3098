"""Open-loop load on any OpenAI server: Poisson arrivals of token-id prompts, streamed, EOS ignored.

    python bench/online.py make qwen3-0.6b DIR      # config and tokenizer; no weights
    yaie serve DIR --load-format dummy --served-model-name m
    python bench/online.py run http://127.0.0.1:8000 m --rates 20,60,100 --label qwen3-0.6b > lines
    python bench/online.py burst http://127.0.0.1:8000 m --label qwen3-0.6b >> lines
    python bench/online.py table lines

Each rate gives one JSON line: TTFT of ordinary requests and of 8k prompts, gaps between chunks,
time per output token, output tokens/s, and how many requests ended well. Rates run in the order
given; prompts repeat between rates (one seed), so a prefix cache helps every engine alike. `table`
puts the lines of a file beside stored figures of the shape that the label names (`peers.py` says
under which conditions they were measured), or beside those of a server that `--peer NAME=URL`
loaded in turns.

`--repeat 2 --no-warm --seconds 30` compares a server's first 30 s under load with the next (other
ids, same times and lengths). `--overload` doubles the last rate until the server ends hardly more
requests per second than before, and then offers twice what it can end.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Any

import arrivals
import clients
import tables
import workloads
from arrivals import Arrival, Mix, Span
from clients import Target
from summary import Summary, repeat_ratios, summarise
from tables import Line

WARM_UPS, WARM_UP_GRACE_S = 2, 60.0
MOST_DOUBLINGS, SATURATED_GROWTH = 6, 1.25
BURST_REQUESTS, BURST_VOCAB = 512, 100_001


# Model folders


def make(options: argparse.Namespace) -> None:
    """Write a model folder without weights."""
    folder = workloads.write_model_dir(options.model, options.dir)
    write_tokenizer(folder, workloads.MODELS[options.model]["vocab_size"])


def write_tokenizer(folder: Path, vocab_size: int) -> None:
    """Write a byte-level tokenizer whose further ids are words of their own, so each has a text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [f"\u0120w{i:x}" for i in range(len(symbols), vocab_size)]
    vocab = {text: i for i, text in enumerate([*symbols, *words])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "\u0120w200"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


# Load


class Bench:
    """One server, and perhaps peers of it, loaded in turns; every line is printed at once."""

    def __init__(self, options: argparse.Namespace) -> None:
        peers = {name: Target(url, options.name) for name, url in options.peer}
        self.targets: dict[str | None, Target] = {None: Target(options.url, options.name)} | peers
        self.options = options

    def warm_up(self, mix: Mix) -> None:
        work = arrivals.warm_up(mix)
        for _ in range(0 if self.options.no_warm else WARM_UPS):
            for target in self.targets.values():
                clients.load(target, work, self.options.procs, WARM_UP_GRACE_S)

    def measure(self, rate: float | None, work: Sequence[Arrival]) -> Summary:
        """Load each server `--repeat` times; returns our last figures."""
        if not work:
            sys.exit("online.py: no request comes at that rate in that time")
        turns = [
            {name: self._load(name, rate, turn, work) for name in self.targets}
            for turn in range(self.options.repeat)
        ]
        if len(turns) > 1:
            ratios = repeat_ratios(turns[0][None], turns[-1][None])
            place = {"label": self.options.label, "rate": rate}
            print(json.dumps(place | {"first_over_last": ratios}), flush=True)
        return turns[-1][None]

    def _load(
        self, peer: str | None, rate: float | None, turn: int, work: Sequence[Arrival]
    ) -> Summary:
        work = arrivals.with_other_ids(work, turn, self.options.vocab)
        outcomes, start_s = clients.load(
            self.targets[peer], work, self.options.procs, self.options.grace
        )
        summary = summarise(self.options.label, rate, len(work), outcomes, start_s)
        print(json.dumps(asdict(summary) | ({"peer": peer} if peer else {})), flush=True)
        return summary


def run(options: argparse.Namespace) -> None:
    """Every rate in turn."""
    bench = Bench(options)
    mix = Mix(options.inp, options.out, options.big_every, options.seed, options.vocab)
    bench.warm_up(mix)
    for rate in options.rates:
        last = bench.measure(rate, arrivals.poisson(rate, options.seconds, mix))
    if options.overload:
        seeds = count(options.seed + 1)  # a prefix cache must not move the rate that saturates

        def measure(rate: float) -> Summary:
            work = arrivals.poisson(rate, options.seconds, replace(mix, seed=next(seeds)))
            return bench.measure(rate, work)

        overload(rate, last, measure)


def overload(rate: float, last: Summary, measure: Callable[[float], Summary]) -> Summary:
    """Double the rate, as long as clearly more requests/s end; then offer twice the most."""
    most = last.served_rate
    for _ in range(MOST_DOUBLINGS):
        rate *= 2
        last = measure(rate)
        grown, most = last.served_rate / max(most, 1e-9), max(most, last.served_rate)
        if grown < SATURATED_GROWTH:
            break
    if not most:
        sys.exit("online.py: no request ended well, so there is no rate to double")
    return measure(round(2 * most, 1))


def burst(options: argparse.Namespace) -> None:
    """Many short chats at the same moment."""
    bench = Bench(options)
    bench.warm_up(Mix(vocab=options.vocab))
    bench.measure(None, arrivals.burst(options.requests, options.vocab))


# Tables


def table(options: argparse.Namespace) -> None:
    """The lines of the files beside the figures of peers."""
    texts = [text for path in options.files for text in path.read_text().splitlines()]
    entries = [json.loads(text) for text in texts if text.startswith("{")]
    print(tables.online_table([line(entry) for entry in entries if "requests" in entry]))
    for entry in entries:
        if "first_over_last" in entry:
            text = tables.repeat_text(entry["label"], entry["rate"], entry["first_over_last"])
            print(f"\n{text}")


def line(entry: dict[str, Any]) -> Line:
    """The figures of a printed line."""
    peer = entry.pop("peer", None)
    return Line(Summary(**entry), peer)


# Command line


def span(text: str) -> Span:
    """Parse `LEAST:MOST`."""
    least, most = (int(part) for part in text.split(":"))
    return least, most


def rates(text: str) -> list[float]:
    """Parse `RATE,RATE,…`."""
    return [float(part) for part in text.split(",")]


def named_url(text: str) -> tuple[str, str]:
    """Parse `NAME=URL`."""
    name, sign, url = text.partition("=")
    if not (name and sign and url):
        raise argparse.ArgumentTypeError("NAME=URL is wanted")
    return name, url


def add_load_flags(parser: argparse.ArgumentParser, vocab: int) -> None:
    parser.add_argument("url", help="base URL, without /v1")
    parser.add_argument("name", help="the model's name there")
    parser.add_argument("--procs", type=int, default=4, help="client processes")
    parser.add_argument("--label", default="", help="`table` finds the shape in it")
    parser.add_argument("--no-warm", action="store_true", help="begin with the server's first load")
    parser.add_argument("--vocab", type=int, default=vocab, help="token ids are below")
    parser.add_argument("--grace", type=float, default=40, help="seconds that requests may run on")
    parser.add_argument("--repeat", type=int, default=1, help="load so often; other ids each time")
    parser.add_argument("--peer", type=named_url, action="append", default=[], metavar="NAME=URL")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    maker = commands.add_parser("make", help="write a model folder without weights")
    maker.add_argument("model", choices=list(workloads.MODELS))
    maker.add_argument("dir", type=Path)
    maker.set_defaults(do=make)
    runner = commands.add_parser("run", help="Poisson arrivals at one rate after the other")
    add_load_flags(runner, vocab=100_000)
    runner.add_argument("--rates", type=rates, default="10,20,40", help="requests/s, ascending")
    runner.add_argument("--seconds", type=float, default=20, help="of arrivals at each rate")
    runner.add_argument("--inp", type=span, default="200:800", help="prompt tokens")
    runner.add_argument("--out", type=span, default="100:300", help="output tokens")
    runner.add_argument("--big-every", type=float, default=4, help="seconds between 8k prompts")
    runner.add_argument("--seed", type=int, default=5)
    runner.add_argument("--overload", action="store_true", help="then twice the saturating rate")
    runner.set_defaults(do=run)
    burster = commands.add_parser("burst", help="short chats, all at the same moment")
    add_load_flags(burster, vocab=BURST_VOCAB)
    burster.add_argument("--requests", type=int, default=BURST_REQUESTS, help="512 at most")
    burster.set_defaults(do=burst)
    tabler = commands.add_parser("table", help="figure / peer's figure / ratio as Markdown")
    tabler.add_argument("files", type=Path, nargs="+", metavar="FILE")
    tabler.set_defaults(do=table)
    return parser.parse_args(arguments)


def main() -> None:
    """Run a command."""
    options = parse(sys.argv[1:])
    options.do(options)


if __name__ == "__main__":
    main()
