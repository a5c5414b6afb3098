"""Folders for a pod's volumes. emptyDirs, Secrets and ConfigMaps are removed with the pod; the
folder of a claim stays until its PersistentVolumeClaim is deleted, and for ever if it never had
one.
"""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from yaie_local.kubelet.containers import ConfigError, Lookup, decode_secret
from yaie_local.objects import is_finished, uid_of
from yaie_local.state import StateFolder
from yaie_operator.cluster import Object


def prepare(pod: Object, state: StateFolder, lookup: Lookup) -> dict[str, Path]:
    """Create and fill the folder of each volume; returns the folders by the volumes' names.

    Raises:
        ConfigError: a Secret or ConfigMap that a volume refers to is missing.

    """
    folder = folder_of(pod, state)
    folder.mkdir(mode=0o700, exist_ok=True)
    return {
        volume["name"]: _folder(volume, pod, folder, state, lookup)
        for volume in pod["spec"].get("volumes") or ()
    }


def folder_of(pod: Object, state: StateFolder) -> Path:
    """The pod's own folder, which is the working directory of its process."""
    return state.pods / uid_of(pod)


def discard(pod: Object, state: StateFolder) -> None:
    """Remove a pod's folder with its emptyDirs, Secrets and ConfigMaps."""
    shutil.rmtree(folder_of(pod, state), ignore_errors=True)


def discard_all(state: StateFolder) -> None:
    """Remove the pod folders that a crashed run left."""
    for folder in state.pods.iterdir():
        shutil.rmtree(folder, ignore_errors=True)


def in_use(claim: Object, pods: Iterable[Object]) -> bool:
    """Whether a pod that has not ended mounts a claim."""
    meta = claim["metadata"]
    return any(
        (volume.get("persistentVolumeClaim") or {}).get("claimName") == meta["name"]
        for pod in pods
        if pod["metadata"]["namespace"] == meta["namespace"] and not is_finished(pod)
        for volume in pod["spec"].get("volumes") or ()
    )


def discard_claim(claim: Object, state: StateFolder) -> None:
    """Remove a claim's folder and all that is in it."""
    meta = claim["metadata"]
    path = state.volumes / str(meta["namespace"]) / str(meta["name"])
    shutil.rmtree(path, ignore_errors=True)


def _folder(
    volume: Mapping[str, Any], pod: Object, folder: Path, state: StateFolder, lookup: Lookup
) -> Path:
    claim = volume.get("persistentVolumeClaim")
    if claim is not None:
        path = state.volumes / str(pod["metadata"]["namespace"]) / str(claim["claimName"])
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path
    path = folder / "volumes" / str(volume["name"])
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for key, kind, name in (("secret", "Secret", "secretName"), ("configMap", "ConfigMap", "name")):
        if key in volume:
            _fill(path, lookup(kind, volume[key][name]), kind, volume[key][name])
    return path


def _fill(path: Path, source: Object | None, kind: str, name: str) -> None:
    if source is None:
        raise ConfigError(f'no {kind} "{name}" in this namespace; create it with `yaie apply -f`')
    values = decode_secret(source) if kind == "Secret" else source.get("data") or {}
    for key, value in values.items():
        target = path / key
        target.touch(mode=0o600)
        target.write_text(value)
