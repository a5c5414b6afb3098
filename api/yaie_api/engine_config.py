"""The settings of an engine, each defined once: type, default, limits, flag and help text.

`EngineConfig` is the configuration that the engine process receives. The flags of `yaie serve`, the
engine's fields of an InferenceModel, the arguments that the operator passes and the table in
`docs/settings.md` are all derived from it (`settings`). A setting that vLLM also has keeps vLLM's
name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

DType: TypeAlias = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True)
class Setting:
    """The properties of a setting besides its type and default.

    Attributes:
        help: what the setting does, for `--help`.
        unit: placeholder of the value in `--help`.
        least: smallest value.
        most: largest value.
        open_least: whether `least` itself is refused.
        without: the behaviour if the setting is None, for `--help`.
        flags: other names of the setting's flag.

    """

    help: str
    unit: str | None = None
    least: float | None = None
    most: float | None = None
    open_least: bool = False
    without: str | None = None
    flags: tuple[str, ...] = ()


def _tokens(help_: str, **more: Any) -> Setting:
    return Setting(help_, unit="TOKENS", least=1, **more)


def _count(help_: str, **more: Any) -> Setting:
    return Setting(help_, unit="N", least=1, **more)


def _seconds(help_: str, **more: Any) -> Setting:
    return Setting(help_, unit="SECONDS", least=0, **more)


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration of an engine process.

    `model`: `builtin://NAME`, `hf://org/name[@revision]`, or a local folder. `served_model_name`:
    the name that clients use; None: derived from `model`. If another field is None, the engine
    chooses its value by model and device at start.
    """

    model: str
    served_model_name: str | None = None
    revision: Annotated[
        str | None, Setting("branch, tag or commit of an hf:// model", unit="NAME")
    ] = None
    device: Annotated[Literal["auto", "cpu", "cuda"], Setting("auto: a GPU where there is one")] = (
        "auto"
    )
    dtype: Annotated[
        DType,
        Setting("auto: the checkpoint's own on a GPU, float32 on a CPU"),
    ] = "auto"
    max_model_len: Annotated[
        int | None,
        _tokens("longest prompt and answer together", without="the model's own limit"),
    ] = None
    max_num_seqs: Annotated[
        int | None,
        _count(
            "most sequences that run at once", without="1024 on a GPU of 70 GiB or more, else 256"
        ),
    ] = None
    max_num_batched_tokens: Annotated[
        int | None, _tokens("most tokens of one step", without="by device")
    ] = None
    max_num_queued_reqs: Annotated[int, _count("requests that may wait; more get 429")] = 2048
    gpu_memory_utilization: Annotated[
        float,
        Setting(
            "share of the GPU's memory for weights, activations and KV cache",
            unit="SHARE", least=0, open_least=True, most=1,
        ),
    ] = 0.9  # fmt: skip
    kv_cache_tokens: Annotated[
        int | None, _tokens("size of the KV cache", without="what the memory holds")
    ] = None
    page_size: Annotated[int, _tokens("tokens in one KV page", flags=("--block-size",))] = 16
    swap_space_gib: Annotated[
        float,
        Setting(
            "host memory for preempted requests' pages; 0: they are computed again",
            unit="GIB", least=0, flags=("--swap-space",),
        ),
    ] = 0.0  # fmt: skip
    scheduling_policy: Annotated[
        Literal["fcfs", "priority", "longest-prefix", "fair"],
        Setting("order of waiting requests; fair: by tokens per tenant"),
    ] = "fcfs"
    request_timeout_s: Annotated[
        float | None,
        _seconds("end a request with an error after this long", without="no limit"),
    ] = None
    enable_prefix_caching: Annotated[
        bool, Setting("keep what was computed for later prompts that begin alike")
    ] = True
    load_format: Annotated[
        Literal["auto", "dummy"], Setting("dummy: random weights, for benchmarks")
    ] = "auto"
    model_impl: Annotated[
        Literal["auto", "yaie", "transformers"],
        Setting("auto: native where there is one, otherwise transformers"),
    ] = "auto"
    mla_form: Annotated[
        Literal["auto", "absorbed", "latent", "naive"],
        Setting("how latent attention (DeepSeek) is computed"),
    ] = "auto"
    tokenizer: Annotated[
        str | None, Setting("where the tokenizer is, if not with the model", unit="FOLDER")
    ] = None
    pooling: Annotated[
        Literal["auto", "last", "mean"],
        Setting("how embeddings are made (auto: as the checkpoint says, else last token)"),
    ] = "auto"
    max_logprobs: Annotated[
        int,
        Setting(
            "most log-probabilities per token that a request may ask for; -1: all",
            unit="N", least=-1,
        ),
    ] = 20  # fmt: skip
    max_grammars: Annotated[
        int, _count("structured outputs compiled at the same time, each in a thread")
    ] = 2
    enforce_eager: Annotated[bool, Setting("never capture CUDA graphs")] = False
    seed: Annotated[
        int | None,
        Setting("seed of requests that name none", unit="N", without="a new one for each"),
    ] = None
    step_time_target_s: Annotated[
        float | None,
        _seconds(
            "prefill chunks keep steps with decodes near this, as long as that keeps up with what "
            "arrives",
            without="0.05 on a CPU, by device and model on a GPU",
        ),
    ] = None
    cpu_threads: Annotated[
        int | None, _count("threads that compute on the CPU", without="cores - 1")
    ] = None


class Described(NamedTuple):
    """A setting with its field's type and default.

    `kind`: bool, int, float or str. `choices`: the allowed values if they are listed, else empty.
    """

    name: str
    kind: type
    choices: tuple[str, ...]
    default: Any
    setting: Setting

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def told_default(self) -> str:
        """The default as text for `--help` and the documentation; empty if there is none."""
        if self.default is None:
            return self.setting.without or ""
        if isinstance(self.default, bool):
            return "on" if self.default else "off"
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)


@cache
def settings() -> Mapping[str, Described]:
    """All settings that have a flag, by the name of their field."""
    hints = get_type_hints(EngineConfig, include_extras=True)
    defaults = {field.name: field.default for field in msgspec.structs.fields(EngineConfig)}
    found = {}
    for name, hint in hints.items():
        if get_origin(hint) is not Annotated:
            continue
        kind, setting = get_args(hint)
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        plain = str if choices else next(t for t in (*get_args(kind), kind) if t is not type(None))
        found[name] = Described(name, plain, choices, defaults[name], setting)
    return MappingProxyType(found)


def problem(name: str, value: Any) -> str | None:
    """Why a value of a setting is invalid, as a message; None if it is valid."""
    _, _, choices, _, setting = settings()[name]
    if value is None:
        return None
    if choices:
        return None if value in choices else f"must be one of {', '.join(choices)}"
    low, high = setting.least, setting.most
    below = low is not None and (value < low or (setting.open_least and value == low))
    if not below and (high is None or value <= high):
        return None
    if high is not None:
        return f"must be in {'(' if setting.open_least else '['}{low:g}, {high:g}]"
    return f"must be {'above' if setting.open_least else 'at least'} {low:g}"
