"""Memory of GPUs: of common cards as nvidia-smi shows it, and sizes that a user writes."""

import argparse
import re
from dataclasses import dataclass
from typing import Final

_MIB: Final = 2**20
_GIB: Final = 2**30
_UNITS: Final = {"mib": _MIB, "mi": _MIB, "gib": _GIB, "gi": _GIB, "gb": 10**9, "g": 10**9}
MEMORY_MIB: Final = {
    "a10": 23_028,
    "a10g": 23_028,
    "l4": 23_034,
    "a30": 24_576,
    "rtx3090": 24_576,
    "rtx4090": 24_564,
    "rtx5090": 32_607,
    "a100-40gb": 40_960,
    "a40": 46_068,
    "l40s": 46_068,
    "rtx6000-ada": 49_140,
    "h100": 81_559,
    "a100-80gb": 81_920,
    "h100-nvl": 95_830,
    "h20": 97_871,
    "gh200": 97_871,
    "rtx-pro-6000": 97_887,
    "h200": 143_771,
    "b200": 183_359,
}
"""NVIDIA's cards from Ampere on; older ones have no bfloat16."""
COMMON: Final = ("l4", "rtx4090", "a100-40gb", "l40s", "h100", "h200", "b200")
"""Those that are shown if no flag names one, from small to large."""


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU by the name that is shown, and its memory in bytes."""

    name: str
    memory_bytes: int


def card(name: str) -> Card:
    """A card of the table."""
    return Card(name.upper(), MEMORY_MIB[name] * _MIB)


def card_name(text: str) -> str:
    """A name of the table, in any spelling of case.

    Raises:
        ArgumentTypeError: it is not in the table.

    """
    name = text.lower()
    if name not in MEMORY_MIB:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not in the table ({', '.join(MEMORY_MIB)}); give its memory instead: "
            "--gpu-memory 48GiB"
        )
    return name


def size(text: str) -> int:
    """Parse a size of memory to bytes: `80GiB`, `80Gi`, `81559MiB`, `80GB`.

    Raises:
        ArgumentTypeError: the text has no number or no unit.

    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]+)", text.strip().lower())
    if found is None or found[2] not in _UNITS or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write for example 80GiB or 24GB")
    return int(float(found[1]) * _UNITS[found[2]])
