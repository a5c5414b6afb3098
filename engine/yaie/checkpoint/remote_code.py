"""Handles models whose folder contains code (`auto_map` in config.json).

That code is never downloaded, read or run. Such a model is served if a native model or the
installed transformers implements its architecture, and refused otherwise.
"""

from typing import Any

from yaie.model_config.families import FAMILIES
from yaie_api.errors import InvalidRequestError

KEY = "auto_map"


def is_named(raw: dict[str, Any]) -> bool:
    """Whether config.json refers to code in the model's folder."""
    return KEY in raw


def refuse_if_needed(raw: dict[str, Any]) -> None:
    """Refuse a model that only the code in its own folder can run.

    Raises:
        InvalidRequestError: config.json refers to code, and neither the architecture nor the model
            type is known.

    """
    if not is_named(raw) or _is_native(raw) or _is_known(raw.get("model_type")):
        return
    raise InvalidRequestError(
        f"This model asks to run code from its own folder ({KEY!r} in config.json), which is never "
        "done here, and its architecture is not one that runs without it.",
        param="model",
    )


def _is_native(raw: dict[str, Any]) -> bool:
    names = raw.get("architectures")
    return isinstance(names, list) and bool(names) and str(names[0]) in FAMILIES


def _is_known(model_type: Any) -> bool:
    """Whether transformers knows the type. Slow (seconds), so called only if no native model fits,
    when transformers is needed anyway.
    """
    if not isinstance(model_type, str):
        return False
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return model_type in CONFIG_MAPPING_NAMES
