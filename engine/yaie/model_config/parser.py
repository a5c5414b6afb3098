"""A native model's shape, read from config.json by ourselves: no transformers, no code from the
model's folder, no torch. Unknown or unsupported settings are refused with the setting's name.
"""

import msgspec

from yaie.model_config.decoder_config import ModelConfig
from yaie.model_config.families import FAMILIES
from yaie.model_config.fields import Raw, UnsupportedModelError, positive
from yaie.model_config.rope import RopeConfig
from yaie_api.errors import InvalidRequestError

__all__ = ["ModelConfig", "RopeConfig", "UnsupportedModelError", "parse"]


def parse(raw: Raw) -> ModelConfig:
    """Turn the content of config.json into a ModelConfig.

    Raises:
        UnsupportedModelError: no native model runs this architecture, or this setting of it.
        InvalidRequestError: a field means nothing to any model.

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
    """Classes of a sequence classifier: `id2label`, `num_labels`, or the usual two."""
    names = raw.get("id2label")
    if isinstance(names, dict) and names:
        return len(names)
    return positive(raw, "num_labels", default=2)
