"""Models whose folder brings code (`auto_map` in config.json). That code is never downloaded, read
or run: such a model is served where an implementation of ours or of the installed transformers goes
by its name, and refused otherwise.
"""

from typing import Any

from yaie.model_config.families import FAMILIES
from yaie_api.errors import InvalidRequestError

KEY = "auto_map"


def is_named(raw: dict[str, Any]) -> bool:
    """Whether the content of config.json names code of the model's folder."""
    return KEY in raw


def refuse_if_needed(raw: dict[str, Any]) -> None:
    """Refuse a model that only the code of its own folder could run.

    Raises:
        InvalidRequestError: neither its architecture nor its type is known here.

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
    """Slow (seconds): asked only where no native model fits, and transformers is needed anyway."""
    if not isinstance(model_type, str):
        return False
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return model_type in CONFIG_MAPPING_NAMES
