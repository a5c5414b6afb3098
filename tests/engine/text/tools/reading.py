# ruff: noqa: RUF001 - a family of models writes its tags with fullwidth bars
"""Feeds parsers text in pieces and joins what comes out."""

import random
from collections.abc import Iterable

from yaie.text.parts import OutputParser, Part, ReasoningPart, TextPart

Joined = list[tuple[str, ...]]
"""("text", …), ("reasoning", …), ("call", name, arguments): neighbours of a kind joined."""
BEGIN = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
SIGNS = [
    *("<tool_call>", "</tool_call>", "<", "{", "}", "[", "]", '"', "\\", ",", ":", ";", " "),
    *('"name"', '"arguments"', '"parameters"', '"f"', "f", "{}", "null", '{"name": "f"', "é"),
    *("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>", "```json\n", "\n```", "1"),
    *(BEGIN, "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "\n", "function"),
    *(" " * 40, "\n" * 70, "g" * 300, "\\u007b", "\\ud800", "\u00a0", "\x00"),
]
"""What outputs of any format are made of, whole and broken."""


def pieces(text: str, rng: random.Random, longest: int) -> Iterable[str]:
    start = 0
    while start < len(text):
        size = rng.randint(1, longest)
        yield text[start : start + size]
        start += size


def read(parser: OutputParser, chunks: Iterable[str]) -> Joined:
    parts: list[Part] = []
    for chunk in chunks:
        parts += parser.push(chunk)
    return joined(parts + parser.finish())


def joined(parts: Iterable[Part]) -> Joined:
    out: Joined = []
    ids: set[str] = set()
    for part in parts:
        if isinstance(part, TextPart | ReasoningPart):
            kind = "text" if isinstance(part, TextPart) else "reasoning"
            assert part.text, "an empty part says nothing"
            if out and out[-1][0] == kind:
                out[-1] = (kind, out[-1][1] + part.text)
            else:
                out.append((kind, part.text))
        elif part.name is not None:
            assert part.call_id
            assert part.call_id not in ids
            ids.add(part.call_id)
            assert part.index == len(ids) - 1
            out.append(("call", part.name, part.arguments))
        else:
            assert part.call_id is None
            assert part.index == len(ids) - 1
            assert part.arguments
            assert out[-1][0] == "call"
            out[-1] = (*out[-1][:2], out[-1][2] + part.arguments)
    return out
