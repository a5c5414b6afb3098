"""Judges grammars of JSON schemas against a validator: what they let through, what they refuse.

`python tests/engine/schema_judge.py [number] [folder with tokenizer.json]` judges that many
generated schemas and prints the figures.
"""

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema_rs
import llguidance.numpy
import numpy as np
from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer

from yaie.core.request import Grammar
from yaie.runtime.grammar import build
from yaie.text.grammar.schema import check_schema
from yaie_api.errors import InvalidRequestError

WALKS = 4
WALK_TOKENS = 300


@dataclass(frozen=True)
class Case:
    """A schema with instances as they stand in JSON, their properties in the schema's order."""

    name: str
    schema: Any
    valid: Sequence[Any] = ()
    invalid: Sequence[Any] = ()


@dataclass
class Report:
    """Lists name the cases. Times are in seconds of the processor: the machine may be busy."""

    n_cases: int = 0
    refused: list[str] = field(default_factory=list)
    n_valid: int = 0
    false_rejects: list[str] = field(default_factory=list)
    n_invalid: int = 0
    false_accepts: list[str] = field(default_factory=list)
    n_walks: int = 0
    n_ended: int = 0
    wrong_walks: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    compile_s: list[float] = field(default_factory=list)
    mask_s: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"schemas {self.n_cases}, refused {len(self.refused)}",
                f"valid instances {self.n_valid}, rejected {len(self.false_rejects)}",
                f"invalid instances {self.n_invalid}, accepted {len(self.false_accepts)}",
                f"walks {self.n_walks}, ended {self.n_ended}, wrong {len(self.wrong_walks)}",
                f"walks over a limit {len(self.limits)}",
                f"compile ms {_quantiles(self.compile_s, 1e3)}",
                f"mask us {_quantiles(self.mask_s, 1e6)} ({len(self.mask_s)} masks)",
            ]
        )


class Judge:
    """One vocabulary, one random order, one report."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: LLTokenizer, seed: int = 0) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._rng = random.Random(seed)
        self._closing = _closing(tokenizer)
        self._words = np.zeros((1, -(-vocabulary.vocab_size // 32)), np.int32)
        self.report = Report()

    def run(self, cases: Iterable[Case]) -> Report:
        for case in cases:
            self.judge(case)
        return self.report

    def judge(self, case: Case) -> None:
        report = self.report
        report.n_cases += 1
        try:
            schema = check_schema(case.schema, param="response_format")
            grammar = Grammar("json_schema", json.dumps(schema, ensure_ascii=False))
            began = time.thread_time()
            matcher = build.build(self._vocabulary, grammar)
            report.compile_s.append(time.thread_time() - began)
        except InvalidRequestError as error:
            report.refused.append(f"{case.name}: {error.message}")
            return
        validate = jsonschema_rs.validator_for(case.schema, validate_formats=True).is_valid
        self._instances(case, matcher)
        self._walks(case, matcher, validate)

    def _instances(self, case: Case, matcher: LLMatcher) -> None:
        report = self.report
        for instance in case.valid:
            report.n_valid += 1
            if not any(self._accepts(matcher, text) for text in _writings(instance)):
                report.false_rejects.append(f"{case.name}: {json.dumps(instance)[:300]}")
        for instance in case.invalid:
            report.n_invalid += 1
            if any(self._accepts(matcher, text) for text in _writings(instance)):
                report.false_accepts.append(f"{case.name}: {json.dumps(instance)[:300]}")

    def _accepts(self, matcher: LLMatcher, text: str) -> bool:
        copy = matcher.deep_copy()
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return copy.try_consume_tokens(ids) == len(ids) and copy.is_accepting()

    def _walks(self, case: Case, matcher: LLMatcher, validate: Callable[[Any], bool]) -> None:
        report = self.report
        for _ in range(WALKS):
            report.n_walks += 1
            text = self._walk(case, matcher.deep_copy())
            if text is None:
                continue
            report.n_ended += 1
            try:
                good = validate(json.loads(text, parse_float=_finite))
            except ValueError:
                good = False
            if not good:
                report.wrong_walks.append(f"{case.name}: {text[:300]}")

    def _walk(self, case: Case, matcher: LLMatcher) -> str | None:
        """Text of random tokens under the mask; None when it has not ended."""
        ids: list[int] = []
        while not matcher.is_stopped() and len(ids) < WALK_TOKENS:
            began = time.thread_time()
            llguidance.numpy.fill_next_token_bitmask(matcher, self._words, 0)
            self.report.mask_s.append(time.thread_time() - began)
            ids.append(self._draw())
            if not matcher.consume_token(ids[-1]):
                break
        if matcher.is_error():
            self.report.limits.append(f"{case.name}: {matcher.get_error()[:200]}")
            return None
        return self._tokenizer.decode(ids) if matcher.is_stopped() else None

    def _draw(self) -> int:
        """A random allowed token, more often one that ends things."""
        bits = np.unpackbits(self._words[0].view(np.uint8), bitorder="little")
        ends = self._closing[bits[self._closing] != 0]
        if len(ends) and self._rng.random() < 0.6:
            return int(self._rng.choice(ends))
        return int(self._rng.choice(np.flatnonzero(bits)))


def _finite(text: str) -> float:
    """A number of JSON may lie beyond what a float holds; it is a number all the same."""
    return max(-sys.float_info.max, min(float(text), sys.float_info.max))


def _writings(instance: Any) -> tuple[str, str]:
    """As compact and as ordinary encoders write it."""
    return (
        json.dumps(instance, ensure_ascii=False, separators=(",", ":")),
        json.dumps(instance, ensure_ascii=False),
    )


def _closing(tokenizer: Tokenizer) -> Any:
    ends = map(tokenizer.token_to_id, ['"', "}", "]", '"}', "}}", '"]', "<|endoftext|>"])
    return np.array([token_id for token_id in ends if token_id is not None])


def _quantiles(values: Sequence[float], scale: float) -> str:
    if len(values) < 2:
        return "-"
    cuts = statistics.quantiles(values, n=100)
    p50, p99, most = (value * scale for value in (cuts[49], cuts[98], max(values)))
    return f"p50 {p50:.3g}, p99 {p99:.3g}, max {most:.3g}"


def load(folder: Path) -> tuple[Tokenizer, LLTokenizer]:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    eos = tokenizer.token_to_id("<|endoftext|>")
    size = tokenizer.get_vocab_size()
    return tokenizer, build.load_vocabulary(folder, size, [eos])


def main() -> None:
    from engine.grammars import DEMO
    from engine.schema_maker import make_case

    number = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else DEMO
    report = Judge(*load(folder)).run(make_case(seed) for seed in range(number))
    print(report)  # noqa: T201 - a script's output
    for name in ("refused", "false_rejects", "false_accepts", "wrong_walks", "limits"):
        for line in getattr(report, name)[:20]:
            print(f"{name}: {line}")  # noqa: T201 - a script's output


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
