"""Tool calls: how models write them, how they are read from a stream, how they are enforced.

`format_for` picks a model's format once, from its chat template or by name.
"""

from typing import Final

from yaie.text.tools.formats.base import ToolFormat
from yaie.text.tools.formats.deepseek import CALLS_BEGIN, DeepSeekV3, DeepSeekV31
from yaie.text.tools.formats.hermes import Hermes
from yaie.text.tools.formats.llama3 import OPENING as PYTHON_TAG
from yaie.text.tools.formats.llama3 import Llama3
from yaie.text.tools.formats.mistral import ARGUMENTS, MistralList, MistralNamed
from yaie.text.tools.formats.mistral import OPENING as TOOL_CALLS
from yaie.text.tools.spec import ToolChoice, ToolSpec
from yaie_api.errors import InvalidRequestError

__all__ = ["FORMATS", "ToolChoice", "ToolFormat", "ToolSpec", "format_for"]

_CLASSES: Final[dict[str, type[ToolFormat]]] = {
    "hermes": Hermes,
    "qwen": Hermes,
    "llama3_json": Llama3,
    "mistral": MistralList,
    "mistral_args": MistralNamed,
    "deepseek_v3": DeepSeekV3,
    "deepseek_v31": DeepSeekV31,
}
FORMATS: Final = tuple(_CLASSES)


def format_for(template: str | None, override: str | None = None) -> ToolFormat:
    """Return the format of a model: the one named, or the one its chat template writes.

    Templates that know no tools, or write them in a way of their own, get the Hermes form, with
    `in_template` False.

    Raises:
        InvalidRequestError: there is no format of that name.

    """
    if override is not None:
        if override not in _CLASSES:
            raise InvalidRequestError(
                f"There is no tool call parser {override!r}; there are {', '.join(FORMATS)}.",
                param="tool_call_parser",
            )
        return _CLASSES[override](override, in_template="tools" in (template or ""))
    name = _detect(template or "")
    return _CLASSES[name or "hermes"](name or "hermes", in_template=name is not None)


def _detect(template: str) -> str | None:
    if CALLS_BEGIN in template:
        return "deepseek_v3" if "```json" in template else "deepseek_v31"
    if TOOL_CALLS in template:
        return "mistral_args" if ARGUMENTS in template else "mistral"
    if "<tool_call>" in template and not ("<function=" in template or "<arg_key>" in template):
        return "hermes"
    if PYTHON_TAG in template or ('"parameters"' in template and "ipython" in template):
        return "llama3_json"
    return None
