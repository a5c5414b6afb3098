"""Parses config.json to the ModelConfig of a native model, without transformers, torch or code from
the model's folder. Unsupported settings are refused by name.
"""

import msgspec

from yaie.model_config.decoder_config import ModelConfig
from yaie.model_config.families import FAMILIES
from yaie.model_config.fields import Raw, UnsupportedModelError, positive
from yaie.model_config.rope import RopeConfig
from yaie_api.errors import InvalidRequestError

__all__ = ["ModelConfig", "RopeConfig", "UnsupportedModelError", "parse"]


def parse(raw: Raw) -> ModelConfig:
    """Parse the contents of config.json to a ModelConfig.

    Raises:
        UnsupportedModelError: no native model supports the architecture or a setting.
        InvalidRequestError: a value is invalid for any model.

    """
    architecture = _architecture(raw)
    family = FAMILIES.get(architecture)
    if family is None:
        known = ", ".join(name for name, each in FAMILIES.items() if each.head == "lm")
        raise UnsupportedModelError(
            f"Architecture {architecture[:80]!r} has no native model. Language models that have "
            f"one: {known}.",
            param="model",
        )
    return msgspec.structs.replace(
        family.parse(raw),
        architecture=architecture,
        head=family.head,
        num_labels=_label_count(raw) if family.head == "score" else 0,
    )


def _architecture(raw: Raw) -> str:
    names = raw.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise InvalidRequestError(
            "config.json must name exactly one architecture in 'architectures'.", param="model"
        )
    return names[0]


def _label_count(raw: Raw) -> int:
    """Number of classes of a sequence classifier: of `id2label`, else `num_labels`, else 2."""
    names = raw.get("id2label")
    if isinstance(names, dict) and names:
        return len(names)
    return positive(raw, "num_labels", default=2)
