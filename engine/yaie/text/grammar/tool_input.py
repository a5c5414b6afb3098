"""The grammar of a custom tool's input, rewritten for the JSON string in which models write it.

A client gives a Lark grammar or a regular expression (OpenAI's `format` of custom tools). Its
patterns are rewritten by `json_string`. Rules without recursion become terminals: the lexer takes
the longest match, so between two of them it could not tell the escape of a line break, which ends
the first, from one of a quote, which goes on with it. Within one terminal there is no such border.
With `%ignore`, rules stay rules: what is ignored is so between terminals only.

The dialect is llguidance's, without what has no meaning inside a string: special tokens, nested
JSON, complements.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from yaie.text.grammar import lark
from yaie.text.grammar.json_string import GrammarTextError, literal, pattern

_TOKEN: Final = re.compile(
    r"""(?P<comment>//[^\n]*|\#[^\n]*)
    |(?P<range>"(?:\\.|[^"\\\n])+"[ \t]*\.\.[ \t]*"(?:\\.|[^"\\\n])+")
    |(?P<string>"(?:\\.|[^"\\\n])*"i?)
    |(?P<regex>/(?:\\.|[^/\\\n])+/[imslux]*)
    |(?P<imported>%import[ \t]+common(?:\.\w+(?:[ \t]*->[ \t]*\w+)?|[ \t]*\([^)\n]*\)))
    |(?P<ignore>%ignore\b)
    |(?P<rule>^[ \t]*[?!]?[A-Za-z_][\w-]*(?:\.-?\d+)?[ \t]*(?:\[[^\]\n]*\][ \t]*)?:)
    |(?P<alias>->[ \t]*\w+)
    |(?P<name>[A-Za-z_][\w-]*)
    |(?P<unsupported>%\w*|<[^>\n]*>|~(?![ \t]*\d)|@\w+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_OPENINGS: Final = frozenset('"/<')
_NAME: Final = re.compile(r"[A-Za-z_][\w-]*")
_NUMBER: Final = r"(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)"
_EXPONENT: Final = r"[eE][+-]?[0-9]+"
_FLOAT: Final = rf"(?:[0-9]+{_EXPONENT}|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:{_EXPONENT})?)"
_COMMON: Final = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[0-9a-fA-F]",
    "INT": "[0-9]+",
    "SIGNED_INT": "[+-]?[0-9]+",
    "DECIMAL": r"(?:[0-9]+\.[0-9]*|\.[0-9]+)",
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": f"[+-]?{_FLOAT}",
    "NUMBER": f"{_NUMBER}(?:{_EXPONENT})?",
    "SIGNED_NUMBER": f"[+-]?{_NUMBER}(?:{_EXPONENT})?",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\.)*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[a-zA-Z]",
    "WORD": "[a-zA-Z]+",
    "CNAME": "[_a-zA-Z][_a-zA-Z0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
}
"""Terminals of Lark's library, as patterns."""
Piece = tuple[str, str]
"""("name", a name) or ("text", Lark)."""


@dataclass(slots=True)
class _Rule:
    """A rule or terminal. `head`: its name, options and colon as the client wrote them."""

    name: str
    head: str
    body: list[Piece]

    @property
    def references(self) -> frozenset[str]:
        return frozenset(text for kind, text in self.body if kind == "name")


def of_lark(definition: str) -> str:
    """Rewrite a Lark grammar.

    Raises:
        GrammarTextError: it has no rule `start`, or something that cannot be inside a string.

    """
    ignored = [("text", "")]
    rules: list[_Rule] = []
    body: list[Piece] = []
    for found in _TOKEN.finditer(definition):
        kind = found.lastgroup or "other"
        if kind == "unsupported":
            raise GrammarTextError(f"{found[0][:32]!r} has no meaning in the input of a tool")
        if found[0] in _OPENINGS:
            # Looking for the end of each of thousands of these would take seconds.
            raise GrammarTextError(f"a {found[0]} is not closed")
        if kind == "rule":
            name = _NAME.search(found[0])
            body = []
            rules.append(_Rule(name[0] if name else "", found[0].strip(), body))
        elif kind == "imported":
            rules += _imported(found[0])
        elif kind == "ignore":
            body = ignored
            body.append(("text", "\n%ignore"))
        elif kind == "name":
            body.append(("name", found[0]))
        elif kind not in ("comment", "alias"):
            body.append(("text", _REWRITE.get(kind, str)(found[0])))
    if "start" not in {rule.name for rule in rules}:
        raise GrammarTextError("it has no rule named start")
    return _joined(rules, ignored)


def of_regex(text: str) -> str:
    """Return a Lark grammar of the texts that match a regular expression as a whole.

    Raises:
        GrammarTextError: it has something that cannot be inside a string.

    """
    whole = text.removeprefix("^")
    if whole.endswith("$") and not whole.endswith("\\$"):
        whole = whole[:-1]
    # A slash would end Lark's pattern.
    slashed = re.sub(r"(\\.)|/", lambda found: found[1] or r"\/", whole, flags=re.DOTALL)
    return f"start: {pattern(slashed)}"


def _joined(rules: Sequence[_Rule], ignored: Sequence[Piece]) -> str:
    regular: frozenset[str] = frozenset()
    if len(ignored) == 1:
        regular = lark.regular_rules({rule.name: rule.references for rule in rules})
    terminals = {
        rule.name: f"RULE_{number}"
        for number, rule in enumerate(rules)
        if rule.name in regular and not rule.name.isupper()
    }
    lines = [
        f"{terminals[rule.name]}:{_text(rule.body, terminals)}"
        if rule.name in terminals
        else f"{rule.head}{_text(rule.body, terminals)}"
        for rule in rules
    ]
    if "start" in terminals:
        lines.append(f"start: {terminals['start']}")
    return "\n".join(lines) + _text(ignored, terminals)


def _text(body: Sequence[Piece], terminals: dict[str, str]) -> str:
    joined = "".join(terminals.get(text, text) if kind == "name" else text for kind, text in body)
    return joined.rstrip()


def _string(text: str) -> str:
    any_case = text.endswith("i")
    return literal(_decoded(text.removesuffix("i")), any_case=any_case)


def _decoded(text: str) -> str:
    try:
        decoded: str = json.loads(text)
    except ValueError:
        raise GrammarTextError(f"{text[:32]} is not a valid string") from None
    return decoded


def _range(text: str) -> str:
    first, last = (_decoded(end) for end in re.findall(r'"(?:\\.|[^"\\])+"', text))
    return pattern(f"[{_member(first)}-{_member(last)}]")


def _member(character: str) -> str:
    if len(character) != 1:
        raise GrammarTextError("the ends of a range are single characters")
    return lark.code_point(character)


def _regex(text: str) -> str:
    inner, _, flags = text[1:].rpartition("/")
    return pattern(inner, flags)


def _imported(text: str) -> list[_Rule]:
    """Define what is imported: the library's own definitions are of unescaped text."""
    listed = text.partition("common")[2].strip().strip("()").removeprefix(".")
    rules = []
    for entry in listed.split(","):
        name, _, alias = (part.strip() for part in entry.partition("->"))
        if name not in _COMMON:
            raise GrammarTextError(f"common.{name[:32]} is not known; define it in the grammar")
        wanted = alias or name
        rules.append(_Rule(wanted, f"{wanted}:", [("text", f" {pattern(_COMMON[name])}")]))
    return rules


_REWRITE: Final[dict[str, Callable[[str], str]]] = {
    "range": _range,
    "string": _string,
    "regex": _regex,
}
