"""Types of argument values. Their error messages say what is expected; argparse's own message would
name a Python function.
"""

import argparse
import math
from collections.abc import Callable
from typing import Any

from yaie_api.engine_config import Described
from yaie_api.foreign_settings.synonyms import ours


def port(text: str) -> int:
    """Parse a port, 0 to 65535; 0 means any free port.

    Raises:
        ArgumentTypeError: the text is not a whole number from 0 to 65535.

    """
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def positive(text: str) -> int:
    """Parse an integer above zero.

    Raises:
        ArgumentTypeError: the text is not a whole number of at least 1.

    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def count(text: str) -> int:
    """Parse an integer of at least zero.

    Raises:
        ArgumentTypeError: the text is not a whole number of at least 0.

    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def integer(text: str) -> int:
    """Parse an integer.

    Raises:
        ArgumentTypeError: the text is not a whole number.

    """
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def number(text: str) -> float:
    """Parse a finite number.

    Raises:
        ArgumentTypeError: the text is not a finite number.

    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return value


def not_negative(text: str) -> float:
    """Parse a finite number of at least zero, such as seconds.

    Raises:
        ArgumentTypeError: the text is not a finite number, or is below zero.

    """
    value = number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is below zero")
    return value


def share(text: str) -> float:
    """Parse a number above 0 and at most 1.

    Raises:
        ArgumentTypeError: the text is not a number, or not above 0 and at most 1.

    """
    value = number(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0 and at most 1")
    return value


def value_of(setting: Described) -> Callable[[str], Any]:
    """The function that parses values of an engine's setting, also as vLLM spells them."""

    def parse(text: str) -> Any:
        value = ours(setting.name, text)
        return value if value is None else _parser_of(setting)(value)

    return parse


def _parser_of(setting: Described) -> Callable[[str], Any]:
    if setting.kind is str:
        return str
    limits = setting.setting
    if setting.kind is int:
        return positive if limits.least == 1 else integer
    return not_negative if limits.most is None else share
