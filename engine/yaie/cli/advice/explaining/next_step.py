"""What to type next about a model that waits, by the reason of its condition Ready. Pure."""

import shlex
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Commands:
    """How commands about one model are written where it runs.

    `flags`: those that find the place again, as one text with a space before it.
    """

    name: str
    namespace: str
    is_local: bool
    flags: str = ""
    endpoint: str = ""

    def yaie(self, command: str) -> str:
        """A command of ours; with the namespace where it is not the default."""
        space = f" -n {self.namespace}" if self.namespace != "default" else ""
        return f"yaie {command}{space}{self.flags}"

    def kubectl(self, command: str) -> str:
        return f"kubectl {command} -n {self.namespace}{self.flags}"


def next_steps(reason: str, commands: Commands, pod: str) -> tuple[str, ...]:
    """Commands for a reason, the most useful first. `pod`: the one to look at; "": none."""
    chosen = _local if commands.is_local else _cluster
    if found := chosen(reason, commands, pod):
        return found
    if commands.is_local:
        return (commands.yaie(f"ps {commands.name} -o yaml"),)
    return (commands.kubectl(f"describe {_MODEL}/{commands.name}"),)


_MODEL: Final = "inferencemodel"
_POD_WAITS: Final = frozenset({"Unschedulable", "ImagePullFailed", "ConfigError"})
_OPERATOR: Final = frozenset({"NoStatus", "NotSeen", "Creating"})


def _cluster(reason: str, commands: Commands, pod: str) -> tuple[str, ...]:
    name, kubectl = commands.name, commands.kubectl
    if reason in _OPERATOR:
        return (commands.yaie("doctor"),)
    if reason in _POD_WAITS and pod:
        look = kubectl(f"describe pod {pod}")
        spec = kubectl(f"get {_MODEL} {name} -o yaml")
        plan = (f"{spec} | yaie plan -f -{commands.flags}",) if reason == "Unschedulable" else ()
        return (look, *plan)
    if reason == "CrashLoop" and pod:
        return (kubectl(f"logs {pod} --previous"),)
    if reason == "Starting" and pod:
        return (kubectl(f"logs {pod} --follow"),)
    return _by_spec(reason, commands) or {
        "InvalidSpec": (kubectl(f"edit {_MODEL} {name}"),),
        "NameConflict": (kubectl(f"get deployment,service {name}"),),
        "NameTaken": (kubectl(f"get {_MODEL}"),),
        "Refused": (kubectl("describe quota"), kubectl("get events --sort-by=.lastTimestamp")),
        "Draining": (kubectl(f"get pods -l yaie.dev/model={name}"),),
        "Downloading": (kubectl(f"get {_MODEL} {name} --watch"),),
        "DownloadFailed": (kubectl("get jobs,pods"),),
        "ClaimMissing": (kubectl("get pvc"),),
        "ClaimPending": (kubectl("describe pvc"), commands.yaie("doctor")),
    }.get(reason, ())


def _local(reason: str, commands: Commands, pod: str) -> tuple[str, ...]:
    name, yaie = commands.name, commands.yaie
    if reason in ("CrashLoop", "Starting"):
        return (yaie(f"logs {name} -f") if reason == "Starting" else yaie(f"logs {pod or name}"),)
    return _by_spec(reason, commands) or {
        "Unschedulable": (yaie("ps -o wide"), yaie("scale OTHER-MODEL --replicas 0")),
        "InvalidSpec": (yaie("apply -f model.yaml"),),
        "NameTaken": (yaie("ps -o wide"),),
        "NameConflict": (yaie("ps -o wide"),),
    }.get(reason, ())


def _by_spec(reason: str, commands: Commands) -> tuple[str, ...]:
    """What a change of the spec does, and what to do with a model that is ready."""
    name, local = commands.name, commands.is_local
    patch = '{"spec":{"suspend":false}}'
    waked = (
        (commands.yaie(f"scale {name} --replicas 1"), commands.yaie("apply -f model.yaml"))
        if local
        else (
            commands.kubectl(f"scale {_MODEL} {name} --replicas 1"),
            commands.kubectl(f"patch {_MODEL} {name} --type merge -p '{patch}'"),
        )
    )
    return {
        "AllReady": _talk(commands),
        "Idle": (waked[0],),
        "Suspended": (waked[1] + ("   # without suspend: true" if local else ""),),
    }.get(reason, ())


def _talk(commands: Commands) -> tuple[str, ...]:
    """How to talk to a model; inside a cluster by way of a forwarded port."""
    if not commands.is_local and ".svc" in commands.endpoint:
        forward = "port-forward service/yaie-router 8000:8000"
        return (commands.kubectl(forward), f"yaie chat --model {commands.name}")
    at = f" --endpoint {shlex.quote(commands.endpoint)}" if commands.endpoint else ""
    return (f"yaie chat --model {commands.name}{at}",)
