"""Adds `spec.podTemplate` to the template of a model's engines. Pure.

The fields of `PodOverlay` are the list of what may be added; there are no others in the type.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from yaie_api.resource.pod_template import PodTemplate

MOST_BYTES: Final = 240 * 1024
"""Most bytes of a template as JSON: it is recorded in an annotation, and Kubernetes has 256 KiB for
all annotations of an object."""

JSON = dict[str, Any]
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_COPIED: Final = ("schedulerName", "dnsPolicy", "dnsConfig", "hostAliases")


class TemplateTooLargeError(Exception):
    """The pod template does not fit into its annotation; the message is for the user."""


def overlaid(template: JSON, overlay: PodTemplate | None, engines: Mapping[str, str]) -> JSON:
    """The template with what the overlay adds.

    Args:
        template: the operator's own; its labels, volumes and mounts stay.
        overlay: `spec.podTemplate`.
        engines: labels of this model's engines, for selectors that are left out.

    """
    if overlay is None:
        return template
    added = _added(overlay)
    metadata, spec = added.get("metadata", {}), added.get("spec", {})
    merged = _surrounded(template["spec"], spec)
    if affinity := _affinity(spec.get("affinity", {}), engines):
        merged["affinity"] = affinity
    if spreads := spec.get("topologySpreadConstraints"):
        merged["topologySpreadConstraints"] = [_selecting(each, engines) for each in spreads]
    return {"metadata": _metadata(template["metadata"], metadata), "spec": merged}


def surrounded(spec: JSON, overlay: PodTemplate | None) -> JSON:
    """The spec of a download's pod with what the overlay says of the engines' surroundings:
    registries, names, volumes, and the nodes where engines can use what is stored.
    """
    if overlay is None:
        return spec
    added: JSON = _added(overlay).get("spec", {})
    merged = _surrounded(spec, added)
    if nodes := added.get("affinity", {}).get("nodeAffinity"):
        merged["affinity"] = {"nodeAffinity": nodes}
    return merged


def _added(overlay: PodTemplate) -> JSON:
    return overlay.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _surrounded(own: JSON, added: JSON) -> JSON:
    merged: JSON = own | {key: added[key] for key in _COPIED if key in added}
    if secrets := added.get("imagePullSecrets"):  # beside the installation's, for other registries
        known = own.get("imagePullSecrets", [])
        merged["imagePullSecrets"] = [*known, *(one for one in secrets if one not in known)]
    merged["volumes"] = [*own["volumes"], *map(_volume, added.get("volumes", ()))]
    merged["containers"] = [_container(own["containers"][0], added.get("containers", ()))]
    return merged


def check_size(template: JSON) -> None:
    """Check that the template can be recorded.

    Raises:
        TemplateTooLargeError: it is too large.

    """
    size = len(recorded(template).encode())
    if size > MOST_BYTES:
        raise TemplateTooLargeError(
            f"the pod of an engine takes {size >> 10} KiB as JSON, of at most {MOST_BYTES >> 10}; "
            "put long values of engine.env, engine.args and podTemplate into a ConfigMap or Secret"
        )


def recorded(template: JSON) -> str:
    """The template as text for an annotation."""
    return json.dumps(template, separators=(",", ":"), ensure_ascii=False)


def _metadata(own: JSON, added: JSON) -> JSON:
    merged = {**own, "labels": {**added.get("labels", {}), **own["labels"]}}
    if annotations := added.get("annotations"):
        merged["annotations"] = annotations
    return merged


def _volume(volume: JSON) -> JSON:
    """A volume, with the source that Kubernetes takes when none is given."""
    return volume if len(volume) > 1 else {**volume, "emptyDir": {}}


def _container(own: JSON, added: Sequence[JSON]) -> JSON:
    mounts = [mount for container in added for mount in container.get("volumeMounts", ())]
    return {**own, "volumeMounts": [*own["volumeMounts"], *mounts]} if mounts else own


def _affinity(affinity: JSON, engines: Mapping[str, str]) -> JSON:
    """The affinity, in which a term without a selector means the model's own engines."""
    return {
        key: value if key == "nodeAffinity" else _near(value, engines)
        for key, value in affinity.items()
        if value
    }


def _near(affinity: JSON, engines: Mapping[str, str]) -> JSON:
    near: JSON = {}
    if required := affinity.get(_REQUIRED):
        near[_REQUIRED] = [_selecting(term, engines) for term in required]
    if preferred := affinity.get(_PREFERRED):
        near[_PREFERRED] = [
            {**each, "podAffinityTerm": _selecting(each["podAffinityTerm"], engines)}
            for each in preferred
        ]
    return near


def _selecting(term: JSON, engines: Mapping[str, str]) -> JSON:
    return term if "labelSelector" in term else {**term, "labelSelector": {"matchLabels": engines}}
