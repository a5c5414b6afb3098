"""Checks of a request's values. Each error names the field and the allowed values."""

import math

from yaie_api.errors import InvalidRequestError


def check_range(
    name: str, value: object, low: float, high: float, *, open_low: bool = False
) -> None:
    """Check that `value` is a finite number in [low, high], or (low, high] with `open_low`.

    Raises:
        InvalidRequestError: `value` is not such a number.

    """
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        above = low < value if open_low else low <= value
        if above and value <= high:
            return
    bracket = "(" if open_low else "["
    raise InvalidRequestError(
        f"{name} must be a number in {bracket}{low:g}, {high:g}], got {value!r}.", param=name
    )


def check_integer(name: str, value: object, *, low: int, high: int | None = None) -> None:
    """Check that `value` is an integer, at least `low` and at most `high`.

    Raises:
        InvalidRequestError: `value` is not such an integer.

    """
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and value >= low
        and (high is None or value <= high)
    ):
        return
    wanted = f"at least {low}" if high is None else f"between {low} and {high}"
    raise InvalidRequestError(f"{name} must be an integer, {wanted}; got {value!r}.", param=name)


def check_strings(name: str, texts: tuple[object, ...], *, count: int, length: int) -> None:
    """Check that `texts` are at most `count` non-empty strings of at most `length` characters.

    Raises:
        InvalidRequestError: there are too many, or one is empty, too long or not a string.

    """
    if len(texts) > count:
        raise InvalidRequestError(
            f"{name} has {len(texts)} strings; at most {count} are allowed.", param=name
        )
    for text in texts:
        if not isinstance(text, str) or not text:
            raise InvalidRequestError(f"{name} must hold non-empty strings.", param=name)
        if len(text) > length:
            raise InvalidRequestError(
                f"{name} has a string of {len(text)} characters; at most {length} are allowed.",
                param=name,
            )
