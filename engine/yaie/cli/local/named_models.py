"""Models by the name that a user types, without a file: `Qwen/Qwen3-0.6B`, a folder, `builtin://…`."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from yaie.cli.local.files import Loaded
from yaie_api import names
from yaie_api.errors import InvalidRequestError
from yaie_api.foreign_settings.ollama import model_problem

_HUB_NAME: Final = re.compile(r"[A-Za-z0-9][-\w.]*/[A-Za-z0-9][-\w.]*(@[-\w./]+)?", re.ASCII)
_SERVED: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._/]*")
MODEL_HELP: Final = "a name of the hub (ORG/NAME[@REVISION]), a folder, or builtin://yaie-demo"


def source_of(text: str) -> str:
    """The source of what a user names: a URL as it is, a folder's path, or `hf://` of a hub's name.

    Raises:
        InvalidRequestError: the text names no model.

    """
    if told := model_problem(text):
        raise InvalidRequestError(told, param="model")
    source = with_scheme(text)
    if "://" in source or Path(source).expanduser().is_dir():
        return source
    raise InvalidRequestError(
        f"There is no model {text!r}: it is no folder here, and names of the hub have the form "
        "ORG/NAME, for example Qwen/Qwen3-0.6B. builtin://yaie-demo is always there.",
        param="model",
    )


def with_scheme(text: str) -> str:
    """A hub's name with `hf://`, unless a folder has this name; any other text as it is."""
    is_folder = Path(text).expanduser().is_dir()
    return f"hf://{text}" if _HUB_NAME.fullmatch(text) and not is_folder else text


def names_of(text: str) -> tuple[str, ...]:
    """Names by which clients ask for a model that was named without a scheme, as in vLLM: the text
    without a revision, and its last part. None for any other text.
    """
    if with_scheme(text) == text:
        return ()
    name = text.partition("@")[0]
    return name, name.rpartition("/")[2]


def named_models(texts: Iterable[str], namespace: str, *, has_gpu: bool) -> list[Loaded]:
    """An InferenceModel for each of the names: on a GPU if there is one, but a built-in one.

    Raises:
        InvalidRequestError: a text names no model, or two models would have the same name.

    """
    found: dict[str, Loaded] = {}
    for text in dict.fromkeys(texts):
        loaded = _model(text, namespace, has_gpu=has_gpu)
        if (other := found.get(loaded.name)) is not None:
            raise InvalidRequestError(
                f"{other.where} and {text} would both be {loaded.name}; write files with names of "
                "your own for them: yaie up -f models.yaml"
            )
        found[loaded.name] = loaded
    return list(found.values())


def object_name(source: str) -> str:
    """The name of the object for a source: of `hf://Qwen/Qwen3-0.6B@v1` it is `qwen3-0-6b`."""
    last = source.partition("@")[0].rstrip("/").rpartition("/")[2]
    name = re.sub(r"[^a-z0-9]+", "-", last.lower()).strip("-")
    name = name if name[:1].isalpha() else f"m-{name}"
    return name[: names.MAX_NAME_LENGTH].rstrip("-")


def _model(text: str, namespace: str, *, has_gpu: bool) -> Loaded:
    source = source_of(text)
    if "://" not in source:
        source = f"file://{Path(source).expanduser().absolute()}"
    name = object_name(source)
    path = source.partition("://")[2].partition("@")[0].rstrip("/")
    wished = [path, path.rpartition("/")[2]]
    aliases = [one for one in dict.fromkeys(wished) if one != name and _SERVED.fullmatch(one)]
    spec: dict[str, Any] = {"model": {"source": source, "aliases": aliases}}
    if has_gpu and not source.startswith("builtin:"):
        spec["resources"] = {"gpu": {"count": 1}}
    meta = {"name": name, "namespace": namespace}
    model = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": spec}
    return Loaded(text, model)
