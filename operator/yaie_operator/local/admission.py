"""What the API server does to an InferenceModel before it stores it: prune nulls, refuse unknown
fields, fill defaults, validate, check CEL. And what this machine cannot run, said before it is
tried.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from yaie_operator.cluster import Object, RefusedError
from yaie_operator.local import cel, kinds, schema
from yaie_operator.local.objects import name_of

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class Admission:
    """Defaulting and validation. `model_schema` is `openAPIV3Schema` of the InferenceModel CRD."""

    def __init__(self, model_schema: schema.Schema) -> None:
        self._model_schema = model_schema

    def admit(self, obj: Object, old: Object | None) -> Object:
        """The object as it is stored. Raises RefusedError with a message for the user."""
        check_name(obj)
        resource = kinds.of_object(obj)
        if resource is kinds.MODELS:
            return self._admit_model(obj, old)
        if resource is kinds.DEPLOYMENTS:
            _refuse(obj, list(unsupported(obj["spec"]["template"]["spec"])))
        return obj

    def _admit_model(self, obj: Object, old: Object | None) -> Object:
        body = schema.without_nulls(self._model_schema, _content(obj))
        unknown = sorted(schema.unknown_fields(self._model_schema, body))
        if unknown:
            listed = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise RefusedError(f"strict decoding error: {listed}")
        full = schema.with_defaults(self._model_schema, body)
        problems = list(schema.errors(self._model_schema, full))
        if not problems:
            problems = list(cel.violations(self._model_schema, _named(full, obj), _old(old)))
        _refuse(obj, problems)
        kept = {key: obj[key] for key in ("apiVersion", "kind", "metadata")}
        return {**kept, **full}


def check_name(obj: Object) -> None:
    """Raises RefusedError unless metadata.name is a DNS subdomain."""
    name = (obj.get("metadata") or {}).get("name")
    if not isinstance(name, str) or not name:
        raise RefusedError("metadata.name: Required value: name or generateName is required")
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise RefusedError(
            f'metadata.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist '
            "of lower case alphanumeric characters, '-' or '.', and must start and end with an "
            "alphanumeric character"
        )


def unsupported(pod: Mapping[str, Any]) -> Iterator[str]:
    """What a pod asks for that processes on this machine cannot give."""
    containers = pod.get("containers") or []
    if len(containers) != 1:
        yield (
            f"spec.template.spec.containers: {len(containers)} containers: a pod on this machine "
            "is one process; run other containers in a real cluster"
        )
    if pod.get("initContainers"):
        yield (
            "spec.template.spec.initContainers: sidecars and init containers do not run on this "
            "machine; remove them or use a real cluster"
        )
    for volume in pod.get("volumes") or ():
        known = {"emptyDir", "persistentVolumeClaim", "secret", "configMap"}
        if not known & volume.keys():
            yield (
                f"spec.template.spec.volumes[{volume['name']}]: only {', '.join(sorted(known))} "
                "volumes exist on this machine"
            )


def _refuse(obj: Object, problems: list[str]) -> None:
    if not problems:
        return
    group = str(obj["apiVersion"]).partition("/")[0]
    kind = obj["kind"] if "/" not in str(obj["apiVersion"]) else f"{obj['kind']}.{group}"
    said = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    raise RefusedError(f'{kind} "{name_of(obj)}" is invalid: {said}')


def _content(obj: Object) -> dict[str, Any]:
    return {key: value for key, value in obj.items() if key not in _ENVELOPE}


def _named(body: Mapping[str, Any], obj: Object) -> dict[str, Any]:
    """The body with the metadata that CEL may see: name and generateName only."""
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "metadata": {"name": name_of(obj)},
        **body,
    }


def _old(old: Object | None) -> Any:
    return cel.ABSENT if old is None else _named(_content(old), old)


_ENVELOPE: Final = frozenset({"apiVersion", "kind", "metadata"})
