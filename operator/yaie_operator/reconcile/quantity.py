"""Parses Kubernetes quantities: the API server stores "1000m" as "1", which is the same amount."""

import re
from decimal import Decimal
from typing import Final

_FACTORS: Final = {
    "": Decimal(1), "m": Decimal("0.001"), "k": Decimal(10**3), "M": Decimal(10**6),
    "G": Decimal(10**9), "T": Decimal(10**12), "Ki": Decimal(2**10), "Mi": Decimal(2**20),
    "Gi": Decimal(2**30), "Ti": Decimal(2**40),
}  # fmt: skip


def amount(text: str) -> Decimal | None:
    """The value of a quantity; None if the text is not a quantity."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Z]*)", text)
    if found is None or found[2] not in _FACTORS:
        return None
    return Decimal(found[1]) * _FACTORS[found[2]]
