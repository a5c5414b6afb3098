"""Admission: the API server's checks and changes of an object before it is stored.

For an InferenceModel: remove nulls, refuse unknown fields, fill in defaults, validate, check the
CEL rules. For a Deployment or a Job: refuse pods that this machine cannot run.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from yaie_local import kinds
from yaie_local.apiserver import cel, schema
from yaie_local.objects import name_of
from yaie_operator.cluster import Object, RefusedError

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class Admission:
    """Defaulting and validation against a CRD with one version.

    `crd`: the result of `yaie_api.resource.crd.render`, on this machine with `local=True`, so that
    a model's source may be a path.
    """

    def __init__(self, crd: Mapping[str, Any]) -> None:
        (version,) = crd["spec"]["versions"]
        self._schema: schema.Schema = version["schema"]["openAPIV3Schema"]

    def admit(self, obj: Object, old: Object | None) -> Object:
        """Return the object as it is to be stored. `old`: the stored object, None at creation.

        Raises:
            RefusedError: the object is not admitted; the message is for the user.

        """
        check_name(obj)
        resource = kinds.of_object(obj)
        if resource is kinds.MODELS:
            full = self.default(obj)
            _refuse(full, self.violations(full, old))
            return full
        if resource in (kinds.DEPLOYMENTS, kinds.JOBS):
            _refuse(obj, list(unsupported(obj["spec"]["template"]["spec"])))
        return obj

    def default(self, model: Object) -> Object:
        """The model with the schema's defaults filled in."""
        body = schema.without_nulls(self._schema, _content(model))
        envelope = {key: model[key] for key in _ENVELOPE if key in model}
        return {**envelope, **schema.with_defaults(self._schema, body)}

    def violations(self, model: Object, old: Object | None = None) -> list[str]:
        """All violations of a defaulted model, as `path: problem`; empty if it is valid.

        CEL rules run only if the model's structure is valid, as in the API server. `old` is the
        stored object at updates, for transition rules.
        """
        body = _content(model)
        shape = [
            *(f"{path}: unknown field" for path in schema.unknown_fields(self._schema, body)),
            *schema.errors(self._schema, body),
        ]
        before = cel.ABSENT if old is None else _named(old)
        return shape or list(cel.violations(self._schema, _named(model), before))


def check_name(obj: Object) -> None:
    """Check that metadata.name is a DNS subdomain.

    Raises:
        RefusedError: it is missing or is not a DNS subdomain.

    """
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
    """Fields of a pod's spec that processes on this machine do not support, as messages."""
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


def _named(model: Object) -> dict[str, Any]:
    """A model with the only metadata that CEL rules may use: its name."""
    body, name = _content(model), name_of(model)
    return {
        "apiVersion": model["apiVersion"],
        "kind": model["kind"],
        "metadata": {"name": name},
        **body,
    }


_ENVELOPE: Final = ("apiVersion", "kind", "metadata")
