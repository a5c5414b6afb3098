"""Translates llama.cpp's grammars (GBNF, `root ::= …`) into llguidance's dialect of Lark.

Rules without recursion become terminals, because the lexer is much cheaper than the parser.
Newlines have no meaning: a rule ends where the next rule begins.
"""

import itertools
import re
from dataclasses import dataclass
from typing import Final

from yaie.text.grammar import lark

MAX_DEPTH: Final = 64
"""Deepest nesting of parentheses."""
MAX_REPEAT: Final = 2000

_TOKEN: Final = re.compile(
    r"""(?P<skip>[ \t\r\n]+|\#[^\n]*)
    |(?P<rule>[A-Za-z_][\w-]*)(?=[ \t]*::=)
    |(?P<name>[A-Za-z_][\w-]*)
    |(?P<string>"(?:\\.|[^"\\])*")
    |(?P<set>\[\^?(?:\\.|[^\]\\])*\])
    |(?P<repeat>[*+?]|\{[ ]*\d*[ ]*(?:,[ ]*\d*[ ]*)?\})
    |(?P<sign>::=|[|().])""",
    re.VERBOSE,
)
_CHARACTER: Final = re.compile(
    r"\\x([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})|\\(.)|([^\\])", re.DOTALL
)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


class GbnfError(ValueError):
    """The grammar cannot be read; the message names the line or rule."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule. `body`: pieces of Lark; ("name", …) refers to a rule, others are ("text", …)."""

    name: str
    body: tuple[tuple[str, str], ...]

    @property
    def references(self) -> frozenset[str]:
        return frozenset(text for kind, text in self.body if kind == "name")


def to_lark(text: str) -> str:
    """Translate a grammar whose start rule is `root`.

    Raises:
        GbnfError: the text is not a valid grammar.

    """
    rules = {rule.name: rule for rule in _rules(_tokens(text))}
    if "root" not in rules:
        raise GbnfError("there is no rule 'root'")
    for rule in rules.values():
        if missing := rule.references - rules.keys():
            raise GbnfError(f"there is no rule {min(missing)!r}")
    regular = lark.regular_rules({rule.name: rule.references for rule in rules.values()})
    names = _names(rules, regular - {"root"})
    lines = [f"{names[rule.name]}: {_body(rule, names)}" for rule in rules.values()]
    return "\n".join(lines) + "\n"


def _tokens(text: str) -> list[_Token]:
    tokens, position, line = [], 0, 1
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            raise GbnfError(f"line {line} has an unexpected {text[position]!r}")
        if found.lastgroup != "skip":
            tokens.append(_Token(found.lastgroup, found.group(), line))
        line += found.group().count("\n")
        position = found.end()
    return tokens


def _rules(tokens: list[_Token]) -> list[_Rule]:
    starts = [index for index, token in enumerate(tokens) if token.kind == "rule"]
    if tokens and (not starts or starts[0] != 0):
        raise GbnfError(f"line {tokens[0].line} does not begin a rule, 'name ::= …'")
    borders = itertools.pairwise([*starts, len(tokens)])
    return [_rule(tokens[start:end]) for start, end in borders]


def _rule(tokens: list[_Token]) -> _Rule:
    """Check the order of a rule's tokens and translate them one by one."""
    name, body = tokens[0].text, tokens[2:]
    pieces: list[tuple[str, str]] = []
    depth, may_repeat = 0, False
    for token in body:
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "sign" else 0
        misplaced = token.kind == "repeat" and not may_repeat
        if token.text == "::=" or depth < 0 or depth > MAX_DEPTH or misplaced:
            raise GbnfError(f"line {token.line} has a misplaced {token.text!r}")
        opens = token.kind == "sign" and token.text in {"(", "|"}
        pieces.append(_piece(token))
        may_repeat = not opens and token.kind != "repeat"
    if depth:
        raise GbnfError(f"rule {name!r} has a parenthesis that is not closed")
    return _Rule(name, _with_empty_alternatives(pieces))


def _with_empty_alternatives(pieces: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Write empty alternatives as `""`, which Lark requires."""
    out: list[tuple[str, str]] = []
    for piece in [*pieces, ("text", ")")]:
        after_start = not out or out[-1] in {("text", "("), ("text", "|")}
        if after_start and piece in {("text", ")"), ("text", "|")}:
            out.append(("text", '""'))
        out.append(piece)
    return tuple(out[:-1])


def _piece(token: _Token) -> tuple[str, str]:
    match token.kind:
        case "name":
            return "name", token.text
        case "string":
            return "text", lark.literal(_unescape(token.text[1:-1], token.line)) or '""'
        case "set":
            return "text", _set(token)
        case "repeat":
            return "text", _repeat(token)
        case _:
            return "text", r"/(?s:.)/" if token.text == "." else token.text


def _set(token: _Token) -> str:
    """Translate a set such as `[^a-z]`, with each character written as its code point."""
    inner = token.text[1:-1]
    negated = inner.startswith("^")
    characters = _CHARACTER.findall(inner[1:] if negated else inner)
    if not characters:
        raise GbnfError(f"line {token.line} has an empty set of characters")
    last = len(characters) - 1
    pieces = [
        "-" if found[4] == "-" and 0 < index < last else lark.code_point(_decode(found, token.line))
        for index, found in enumerate(characters)
    ]
    return f"/[{'^' * negated}{''.join(pieces)}]/"


def _unescape(text: str, line: int) -> str:
    return "".join(_decode(found, line) for found in _CHARACTER.findall(text))


def _decode(found: tuple[str, ...], line: int) -> str:
    two, four, eight, escaped, plain = found
    if plain:
        return plain
    if escaped:
        return _ESCAPES.get(escaped, escaped)
    code = int(two or four or eight, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise GbnfError(f"line {line} has an escape that is no character")
    return chr(code)


def _repeat(token: _Token) -> str:
    counts = [int(number) for number in re.findall(r"\d+", token.text)]
    if max(counts, default=0) > MAX_REPEAT:
        raise GbnfError(f"line {token.line} repeats more than {MAX_REPEAT} times")
    return token.text.replace(" ", "")


def _names(rules: dict[str, _Rule], terminals: frozenset[str]) -> dict[str, str]:
    """Names in Lark, which distinguishes terminals and rules by case."""
    names = {
        name: f"T{index}" if name in terminals else f"r{index}" for index, name in enumerate(rules)
    }
    return names | {"root": "start"}


def _body(rule: _Rule, names: dict[str, str]) -> str:
    """The body of a rule as Lark text, with repeats directly after the repeated piece."""
    text = ""
    for kind, piece in rule.body:
        glued = kind == "text" and piece[0] in "*+?{"
        text += ("" if glued or not text else " ") + (names[piece] if kind == "name" else piece)
    return text
