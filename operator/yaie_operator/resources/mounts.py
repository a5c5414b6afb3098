"""Which volume an engine mounts for its weights, and where they are in it."""

from dataclasses import dataclass
from typing import Any, Final

from yaie_api import names
from yaie_operator.model import ServedModel

MOUNT: Final = "/models"
VOLUME: Final = "model"


@dataclass(frozen=True)
class Stored:
    """Weights in a claim: their folder below its root, their revision, and their bytes."""

    folder: str
    revision: str
    n_bytes: int


def object_name(model: str) -> str:
    """The name of the claim and of the Job of a model with `cache.mode: pvc`."""
    return f"{model}-weights"


def claim_name(model: ServedModel) -> str:
    """The claim that a cache is in: the user's, or the operator's."""
    return model.spec.cache.claim or object_name(model.name)


def source(model: ServedModel, stored: Stored | None) -> str:
    """What `yaie serve` is told to serve: the source, or a folder of a volume."""
    folder = _folder(model, stored)
    if folder is None:
        return model.spec.model.source
    return f"$({names.ENV_MODEL_FOLDER})/{folder}".rstrip("/")


def volume(model: ServedModel, stored: Stored | None) -> dict[str, Any] | None:
    """The volume with the weights; None if the engine finds them itself."""
    written = model.spec.model.source
    if stored is not None:
        return _claim(claim_name(model))
    if written.startswith("pvc://"):
        return _claim(written.removeprefix("pvc://").split("/")[0])
    if written.startswith("oci://"):
        reference = written.removeprefix("oci://").partition("//")[0]
        return {"name": VOLUME, "image": {"reference": reference, "pullPolicy": "IfNotPresent"}}
    return None


def _claim(name: str) -> dict[str, Any]:
    return {"name": VOLUME, "persistentVolumeClaim": {"claimName": name, "readOnly": True}}


def _folder(model: ServedModel, stored: Stored | None) -> str | None:
    scheme, _, rest = model.spec.model.source.partition("://")
    if stored is not None:
        return stored.folder
    if scheme == "pvc":
        return rest.partition("/")[2]
    if scheme == "oci":
        return rest.partition("//")[2]
    return None
