"""Converts a pod's container to a command for this machine. Pure.

Environment variables, `$(VAR)` and the downward API work as in Kubernetes. Three things differ,
because a process shares the machine's file system and network: `yaie` and `python` mean this
installation, 0.0.0.0 becomes the pod's address, and the variables with which the operator names
paths of its own mounts hold the paths of this machine. All other paths stay as they are written:
`/tmp` in an argument or a variable of the user is this machine's.
"""

import base64
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from yaie_api import names
from yaie_operator.cluster import Object
from yaie_operator.resources.pod import ENVIRONMENT

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - replaced by the pod's address, never bound
_REFERENCE: Final = re.compile(r"\$\$|\$\(([-A-Za-z0-9_.]+)\)")
_DOWNWARD: Final = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
PROGRAMS: Final[dict[str, tuple[str, ...]]] = {
    "yaie": (sys.executable, "-m", "yaie"),
    "python": (sys.executable,),
    "python3": (sys.executable,),
}


class ConfigError(Exception):
    """The container cannot be started as written; the message is for the user."""


Lookup = Callable[[str, str], Object | None]
"""Finds a Secret or ConfigMap of the pod's namespace: (kind, name) → object."""


@dataclass(frozen=True)
class Place:
    """A pod's address, the folder of each of its volumes, and its container's termination log."""

    address: str
    volumes: Mapping[str, Path]
    termination_log: Path


def command(pod: Object, env: Mapping[str, str], place: Place) -> list[str]:
    """The argument list of the pod's container.

    Raises:
        ConfigError: the container has no command.

    """
    container = pod["spec"]["containers"][0]
    words = container.get("command") or []
    if not words:
        raise ConfigError(
            "the container has no command; images are not used on this machine, so write one"
        )
    expanded = [expand(word, env) for word in (*words, *(container.get("args") or ()))]
    local = [_localised(word, place.address) for word in expanded]
    return [*PROGRAMS.get(local[0], (local[0],)), *local[1:]]


def environment(
    pod: Object, place: Place, lookup: Lookup, base: Mapping[str, str]
) -> dict[str, str]:
    """The process's environment: `base` and the container's own variables.

    The operator's cache folders are left out: this machine's own are used, so that a model that was
    downloaded once is not downloaded for each pod.

    Raises:
        ConfigError: an object or key that a variable refers to is missing.

    """
    container = pod["spec"]["containers"][0]
    paths = _paths(container, place)
    own: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        own |= _all_of(source, lookup)
    for variable in container.get("env") or ():
        name = variable["name"]
        value = paths.get(name) or _value(variable, pod, place, lookup, own)
        if value is not None and ENVIRONMENT.get(name) != value:
            own[name] = value
    return {**base, **own}


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace `$(VAR)` if VAR is known, and `$$` by `$`; keep all other text."""

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        return env.get(match[1], match[0])

    return _REFERENCE.sub(value, text)


def decode_secret(secret: Object) -> dict[str, str]:
    """The values of a Secret as text."""
    data = secret.get("data") or {}
    plain = {key: base64.b64decode(value).decode() for key, value in data.items()}
    return {**plain, **(secret.get("stringData") or {})}


def _paths(container: Mapping[str, Any], place: Place) -> dict[str, str]:
    """The operator's variables that name paths inside the container, with paths of this machine."""
    folders = {
        mount["mountPath"]: _mounted_folder(mount, place)
        for mount in container.get("volumeMounts") or ()
    }
    given = {v["name"]: v.get("value", "") for v in container.get("env") or ()}
    paths = {names.ENV_TERMINATION_LOG: place.termination_log}
    if (folder := folders.get(given.get(names.ENV_MODEL_FOLDER, ""))) is not None:
        paths[names.ENV_MODEL_FOLDER] = folder
    return {name: str(path) for name, path in paths.items() if name in given}


def _mounted_folder(mount: Mapping[str, Any], place: Place) -> Path:
    folder = place.volumes.get(mount["name"])
    if folder is None:
        raise ConfigError(f'volumeMounts names the volume "{mount["name"]}", which is not there')
    inside = PurePosixPath(mount.get("subPath", ""))
    if inside.is_absolute() or ".." in inside.parts:
        raise ConfigError(f'subPath "{inside}" leaves its volume')
    return folder / inside


def _localised(word: str, address: str) -> str:
    """An argument in which 0.0.0.0 is replaced."""
    flag, equals, value = word.partition("=")
    if word.startswith("--") and equals:
        return f"{flag}={_localised(value, address)}"
    return address if word == ANY_ADDRESS else word


def _value(
    variable: Mapping[str, Any],
    pod: Object,
    place: Place,
    lookup: Lookup,
    earlier: Mapping[str, str],
) -> str | None:
    """A variable's value; None if an optional reference is missing."""
    source = variable.get("valueFrom")
    if source is None:
        return expand(variable.get("value", ""), earlier)
    if "fieldRef" in source:
        return _field(source["fieldRef"]["fieldPath"], pod, place)
    for key, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
        if key in source:
            return _from_object(source[key], kind, lookup)
    raise ConfigError(f"env {variable['name']}: this valueFrom is not supported on this machine")


def _field(path: str, pod: Object, place: Place) -> str:
    meta = pod["metadata"]
    known = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "status.podIP": place.address,
        "status.hostIP": "127.0.0.1",
        "spec.nodeName": "localhost",
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default"),
    }
    if path in known:
        return str(known[path])
    keyed = _DOWNWARD.fullmatch(path)
    if keyed is None:
        raise ConfigError(f"fieldRef {path} is not supported on this machine")
    return str((meta.get(keyed[1]) or {}).get(keyed[2], ""))


def _from_object(reference: Mapping[str, Any], kind: str, lookup: Lookup) -> str | None:
    name, key = reference["name"], reference["key"]
    found = lookup(kind, name)
    values = _values(found) if found is not None else {}
    if key in values:
        return values[key]
    if reference.get("optional"):
        return None
    what = f'no key "{key}" in {kind}' if found is not None else f"no {kind}"
    raise ConfigError(f'{what} "{name}" in this namespace; create it with `yaie apply -f`')


def _all_of(source: Mapping[str, Any], lookup: Lookup) -> dict[str, str]:
    prefix = source.get("prefix", "")
    for key, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
        reference = source.get(key)
        if reference is None:
            continue
        found = lookup(kind, reference["name"])
        if found is None and not reference.get("optional"):
            raise ConfigError(f'no {kind} "{reference["name"]}" in this namespace')
        return {prefix + k: v for k, v in (_values(found) if found else {}).items()}
    return {}


def _values(obj: Object) -> dict[str, str]:
    return decode_secret(obj) if obj["kind"] == "Secret" else dict(obj.get("data") or {})
