"""Reads what is to be planned: a model's configuration, and the pod that would run it."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from yaie.checkpoint import sizes, source
from yaie.cli.advice.planning.memory import Subject
from yaie.cli.commands.serve import engine_config
from yaie.cli.local.files import DEFAULT_NAMESPACE, Loaded, load
from yaie.cli.local.named_models import named_models, source_of
from yaie.model_config.decoder_config import with_mla_form
from yaie.models import registry
from yaie.runtime.startup import footprint, preflight
from yaie.runtime.startup.footprint import Footprint
from yaie_api import names
from yaie_api.engine_config import EngineConfig, settings
from yaie_api.errors import InvalidRequestError
from yaie_api.resource.capacity import DTYPE_BYTES

if TYPE_CHECKING:
    from yaie_operator.model import ServedModel

READABLE: Final = ("builtin://", "hf://", "file://")
"""Sources whose config.json can be read from here."""


@dataclass(frozen=True)
class Wish:
    """One model to plan for.

    Attributes:
        name: of its object.
        namespace: of its object; None: neither file nor flag says it.
        source: as the user named it.
        config: the engine's configuration.
        pod: the spec of an engine's pod.
        is_open: whether `yaie up` would choose between GPU and CPU by what the machine has.
        replicas: engines that are wanted, at most.
        by_load: whether the load decides how many.
        max_surge: of the rollout.
        strategy: of the rollout.
        memory: what an engine on a CPU may take, as the file says it; None: it does not.

    """

    name: str
    namespace: str | None
    source: str
    config: EngineConfig
    pod: Mapping[str, Any]
    is_open: bool
    replicas: int
    by_load: bool
    max_surge: int
    strategy: str
    memory: str | None


def wishes(args: argparse.Namespace) -> list[Wish]:
    """What the command line asks to plan.

    Raises:
        InvalidRequestError: it names nothing, or what it names cannot be used.

    """
    if not args.model and not args.filename:
        raise InvalidRequestError("say what to plan: MODEL, or -f model.yaml")
    if not args.filename:
        (loaded,) = named_models(
            [args.model], args.namespace or DEFAULT_NAMESPACE, has_gpu=args.device != "cpu"
        )
        is_open = args.device == "auto"
        return [_wish(loaded, args.namespace, engine_config(args), is_open=is_open)]
    found = [one for one in load(args.filename, args.namespace) if one.object["kind"] == names.KIND]
    if not found:
        raise InvalidRequestError(f"there is no {names.KIND} in these files")
    if args.model and len(found) > 1:
        raise InvalidRequestError(
            "MODEL stands for the source of one model; the files have several"
        )
    return [_of_file(loaded, args) for loaded in found]


def subject_of(wish: Wish) -> Subject:
    """Read a model's configuration, from its folder or the hub, and what it takes.

    Raises:
        InvalidRequestError: it cannot be read from here, is refused, or does not tell its size.
        UnavailableError: the hub cannot be reached.

    """
    config = wish.config
    scheme = config.model.partition("://")[0]
    if "://" in config.model and f"{scheme}://" not in READABLE:
        raise InvalidRequestError(
            f"{config.model} cannot be read from here. Name a copy of its config.json: "
            "yaie plan FOLDER -f model.yaml"
        )
    folder = source.resolve(config.model, config.revision, with_weights=False)
    raw = source.read_config(folder)
    shape = registry.native(raw, config.model_impl)
    if shape is not None:
        preflight.check_length(config.max_model_len, shape.position_limit)
        shape = with_mla_form(shape, config.mla_form)
    return Subject(
        source=wish.source,
        config=config,
        shape=shape,
        footprint=footprint.of(shape) if shape is not None else _of_files(folder),
        architecture=str((raw.get("architectures") or ["?"])[0]),
        dtype=_dtype(raw),
    )


def _of_files(folder: Path) -> Footprint:
    """What the files of weights say, for a model without a native class.

    Raises:
        InvalidRequestError: they are not there.

    """
    paths = [folder / name for name in source.weight_files(folder)]
    count = sizes.elements(paths)
    if count is None:
        raise InvalidRequestError(
            "This architecture has no native model, so its config.json alone does not tell its "
            "size. Download the weights first: yaie pull MODEL"
        )
    return Footprint(parameters=count, wide=0, kv_elements=0)


def _dtype(raw: Mapping[str, Any]) -> str | None:
    text = raw.get("text_config")
    for table in (raw, text if isinstance(text, dict) else {}):
        name = table.get("dtype") or table.get("torch_dtype")
        if isinstance(name, str) and name.removeprefix("torch.") in DTYPE_BYTES:
            return name.removeprefix("torch.")
    return None


def _of_file(loaded: Loaded, args: argparse.Namespace) -> Wish:
    """The wish of a file's model: its engine gets the arguments that the operator would give it,
    and the command line's own in their place.
    """
    from yaie.cli.main import build_parser
    from yaie_operator.resources.engine import arguments

    served = build_parser("serve").parse_args(["serve", *arguments(_served(loaded))])
    given = {
        name: getattr(args, name)
        for name, known in settings().items()
        if getattr(args, name) != known.default
    }
    served.__dict__ |= given
    if args.model:
        served.model = source_of(args.model)
    elif served.model.startswith("$("):  # where a volume is mounted
        model = loaded.object["spec"]["model"]
        served.model, served.revision = model["source"], model.get("revision")
    return _wish(loaded, args.namespace, engine_config(served))


def _wish(
    loaded: Loaded, namespace: str | None, config: EngineConfig, *, is_open: bool = False
) -> Wish:
    from yaie_operator.config import OperatorConfig
    from yaie_operator.resources.engine import deployment

    served = _served(loaded)
    spec, rollout = served.spec, served.spec.rollout
    named = loaded.object["metadata"].get("namespace")
    return Wish(
        name=served.name,
        namespace=namespace or named,
        source=config.model,
        config=config,
        pod=deployment(served, OperatorConfig(), observed=None)["spec"]["template"]["spec"],
        is_open=is_open,
        replicas=spec.autoscaling.max if spec.autoscaling else spec.desired_replicas,
        by_load=spec.autoscaling is not None,
        max_surge=rollout.max_surge,
        strategy=rollout.strategy,
        memory=spec.resources.memory,
    )


def _served(loaded: Loaded) -> "ServedModel":
    from yaie_operator.model import ServedModel

    meta = {"namespace": DEFAULT_NAMESPACE, "uid": "", **loaded.object["metadata"]}
    return ServedModel.parse({**loaded.object, "metadata": meta})
