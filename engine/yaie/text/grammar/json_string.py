"""Rewrites patterns of a text into patterns of that text inside a JSON string.

Models write a tool's free-text input as a string in a JSON object, where quotes, backslashes and
line breaks are escapes. So each pattern is rewritten, character by character.
"""

import functools
import json
import re
import warnings
from collections.abc import Callable
from typing import Final

from yaie.text.grammar import lark

_SPECIAL: Final = '"\\\n\r\t\b\f'
"""Characters that are written as escapes. Other control characters a pattern must name one by one:
`.` and `[^x]` do not allow them, so that weak models cannot wander there."""
_RAW: Final = r"[^\"\\\x00-\x1F]"
_ATOM: Final = re.compile(
    r"""(?P<keep>\(\?[a-zA-Z-]*[:)]|\(\?P?<\w+>|\{\d*+,?\d*+\}|\\[bBAzZ]|[()|*+?^$])
    |(?P<set>\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\\[sSwWdD]|\.)
    |(?P<one>\\x\{[0-9A-Fa-f]+\}|\\x[0-9A-Fa-f]{2}|\\u\{[0-9A-Fa-f]+\}|\\u[0-9A-Fa-f]{4}|\\.|.)""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN: Final = re.compile(r"\[(?:[A-Z]-[A-Z]|[a-z]-[a-z]|[0-9]-[0-9]|[\w ,:;=+*/.])*\]")
"""A set that certainly has no special character."""
_COMPLEX: Final = re.compile(r"&&|--|~~|\\[pP]|\[(?!:)")
"""Operators, classes and sets inside of a set."""
_CODE_POINT: Final = re.compile(r"\\[xu]\{?([0-9A-Fa-f]+)\}?")
_NAMED: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a", "0": "\0"}


class GrammarTextError(ValueError):
    """The grammar cannot be used inside a string; the message says why."""


def literal(text: str, *, any_case: bool = False) -> str:
    """Return Lark for exactly this text."""
    escaped = json.dumps(text, ensure_ascii=False)[1:-1]
    if any_case:
        return f"/(?i:{''.join(map(lark.code_point, escaped))})/"
    return lark.literal(escaped) or '""'


def pattern(text: str, flags: str = "") -> str:
    """Rewrite the pattern of a Lark grammar, and return it between slashes, with its flags.

    Raises:
        GrammarTextError: it has something that cannot be rewritten.

    """
    every = "s" in flags or re.search(r"\(\?[a-zA-Z]*s", text) is not None
    rewritten = "".join(_atom(found, every=every) for found in _ATOM.finditer(text))
    return f"/{rewritten}/{flags}"


def _atom(found: re.Match[str], *, every: bool) -> str:
    if found["keep"]:
        return found[0]
    if found["one"]:
        return _one(found[0])
    allowed = "" if _PLAIN.fullmatch(found[0]) else _members(found[0], every=every)
    if not allowed:
        return found[0]
    # `.` in a set would be a full stop.
    inner = r"\x00-\x{10FFFF}" if found[0] == "." else found[0]
    return f"(?:[{inner}&&{_RAW}]|{'|'.join(map(_escape, allowed))})"


@functools.lru_cache(maxsize=1024)
def _members(atom: str, *, every: bool) -> str:
    """Return the characters of `_SPECIAL` that the set matches."""
    if _COMPLEX.search(atom.replace("\\\\", "")[1:]):
        raise GrammarTextError(f"the set {atom[:32]!r} is too complex for a tool's input")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of Python's own plans for sets
        try:
            matches: Callable[[str], object] = re.compile(
                _CODE_POINT.sub(_for_python, atom), re.DOTALL if every else 0
            ).fullmatch
        except re.error:
            raise GrammarTextError(f"the set {atom[:32]!r} cannot be read") from None
    return "".join(character for character in _SPECIAL if matches(character))


def _for_python(found: re.Match[str]) -> str:
    return f"\\U{int(found[1], 16):08x}"


def _one(atom: str) -> str:
    """Rewrite an atom that is one character."""
    if atom == "[":
        # Looking for the end of each of thousands of these would take seconds.
        raise GrammarTextError("a set of characters is not closed")
    if not atom.startswith("\\"):
        character = atom
    elif code := _CODE_POINT.fullmatch(atom):
        character = chr(min(int(code[1], 16), 0x10FFFF))
    elif atom[1] in "pPkgG" or (atom[1].isdigit() and atom[1] != "0"):
        raise GrammarTextError(f"{atom!r} is not supported in the pattern of a tool's input")
    else:
        character = _NAMED.get(atom[1], atom[1])
    return _escape(character) if character in '"\\' or character < " " else atom


def _escape(character: str) -> str:
    """Return a pattern of the character's escape in JSON."""
    return "".join(map(lark.code_point, json.dumps(character)[1:-1]))
