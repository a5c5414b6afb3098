"""Typed reads of config.json. Missing, malformed or unsupported values are refused by name.

There are two kinds of refusal: a setting that no native model supports (another implementation
may), and a value that no implementation should receive (a hostile size, a non-finite number).
"""

import sys
from typing import Any

from yaie_api.errors import InvalidRequestError

Raw = dict[str, Any]
"""The contents of config.json, or of a table inside it."""


class UnsupportedModelError(InvalidRequestError):
    """No native model supports this config.json; another implementation may."""


def positive(raw: Raw, name: str, *, default: int | None = None) -> int:
    """Return a positive integer below 2**31; null and absent mean `default`."""
    value = raw.get(name)
    value = default if value is None else value
    if value is None:
        raise unsupported(name, value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
        raise malformed(name, value)
    return value


def optional_positive(raw: Raw, name: str) -> int | None:
    """Return a positive integer, or None if the field is null or absent."""
    return None if raw.get(name) is None else positive(raw, name)


def number(raw: Raw, name: str, default: float | None = None) -> float:
    """Return a finite number; null and absent mean `default`."""
    value = raw.get(name)
    value = default if value is None else value
    if value is None:
        raise unsupported(name, value)
    return _finite(name, value)


def optional_number(raw: Raw, name: str) -> float | None:
    """Return a finite number, or None if the field is null or absent."""
    return None if raw.get(name) is None else number(raw, name)


def numbers(raw: Raw, name: str, count: int) -> tuple[float, ...]:
    """Return a list of `count` finite numbers."""
    value = raw.get(name)
    if not isinstance(value, list) or len(value) != count:
        raise unsupported(name, value)
    return tuple(_finite(name, each) for each in value)


def flag(raw: Raw, name: str, *, default: bool = False) -> bool:
    """Return a boolean; null and absent mean `default`."""
    value = raw.get(name)
    value = default if value is None else value
    if not isinstance(value, bool):
        raise malformed(name, value)
    return value


def require(holds: bool, name: str, value: object) -> None:  # noqa: FBT001 - a bare condition
    """Refuse the model unless `holds`: no native model supports `name` = `value`."""
    if not holds:
        raise unsupported(name, value)


def unsupported(name: str, value: object) -> UnsupportedModelError:
    """Return the error for a setting that no native model supports."""
    return UnsupportedModelError(
        f"config.json: {name} = {_shown(value)} is missing or not supported.", param="model"
    )


def malformed(name: str, value: object) -> InvalidRequestError:
    """Return the error for a value that is invalid for any model."""
    return InvalidRequestError(
        f"config.json: {name} = {_shown(value)} is malformed.", param="model"
    )


def _finite(name: str, value: object) -> float:
    valid = isinstance(value, int | float) and not isinstance(value, bool)
    if not valid or not abs(value) <= sys.float_info.max:  # type: ignore[arg-type]  # a number
        raise malformed(name, value)
    return float(value)  # type: ignore[arg-type]  # a number, see above


def _shown(value: object) -> str:
    return repr(value)[:80]
