"""The rules of the Pod Security Standard *restricted*, on a pod's spec as JSON. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

VOLUMES: Final = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
    "projected", "secret",
}  # fmt: skip
SECCOMP: Final = ("RuntimeDefault", "Localhost")


def violations(pod: Mapping[str, Any]) -> list[str]:
    """What the standard forbids in this pod."""
    return [*_of_pod(pod), *(each for one in _containers(pod) for each in _of_container(one, pod))]


def _of_pod(pod: Mapping[str, Any]) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield field
    security = pod.get("securityContext", {})
    if security.get("sysctls") or security.get("seLinuxOptions") or security.get("windowsOptions"):
        yield "securityContext: sysctls, seLinuxOptions or windowsOptions"
    for volume in pod.get("volumes", ()):
        if not VOLUMES.issuperset(volume.keys() - {"name"}):
            yield f"volume {volume['name']}"


def _containers(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from pod.get(field, ())


def _of_container(container: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[str]:
    own, whole = container.get("securityContext", {}), pod.get("securityContext", {})
    both = {**whole, **own}
    wrong = {
        "privileged": own.get("privileged"),
        "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is not False,
        "capabilities.drop": "ALL" not in own.get("capabilities", {}).get("drop", ()),
        "capabilities.add": set(own.get("capabilities", {}).get("add", ())) - {"NET_BIND_SERVICE"},
        "runAsNonRoot": both.get("runAsNonRoot") is not True,
        "runAsUser": both.get("runAsUser") == 0,
        "seccompProfile": both.get("seccompProfile", {}).get("type") not in SECCOMP,
        "procMount": own.get("procMount", "Default") != "Default",
        "hostPort": any(port.get("hostPort") for port in container.get("ports", ())),
    }
    return (f"{container['name']}: {name}" for name, is_wrong in wrong.items() if is_wrong)
