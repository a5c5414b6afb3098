"""Specs of users who err or mean harm: each is refused with a useful message, or harmless.

One table, run against the local API server and a real one. `refused=None`: harmless, so the spec is
stored, and what it says reaches an engine as one argument or variable, never a shell.
"""

from typing import Any

from api.crd_cases import Case, autoscaled, source, spec
from yaie_api.resource import pod_template

RTL, ZERO_WIDTH, FULL_WIDTH, CYRILLIC = "\u202e", "\u200b", "\uff41", "\u0430"
SHELL = ("; rm -rf /", "$(reboot)", "`reboot`", "a && b", "| sh", "> /etc/passwd", "'\"\\", "*")


def args(*words: str) -> dict[str, Any]:
    return spec(engine={"args": list(words)})


def env(name: str = "A", value: str = "1", **more: Any) -> dict[str, Any]:
    return spec(engine={"env": [{"name": name, "value": value, **more}]})


def secret(**ref: Any) -> dict[str, Any]:
    return spec(engine={"env": [{"name": "A", "valueFrom": {"secretKeyRef": ref}}]})


def resources(**given: Any) -> dict[str, Any]:
    return spec(resources=given)


def named(title: str, name: str, refused: str | None = None) -> Case:
    return Case(title, spec(), refused, name=name)


PLACES = (
    source("a claim of another namespace", "pvc://other/../../secrets", "'..'"),
    source("a path that climbs at its end", "pvc://models/a/..", "'..'"),
    source("a path with a line break", "pvc://models/a\n", "write pvc://CLAIM/PATH"),
    source("a path with a space", "pvc://models/a b", "write pvc://CLAIM/PATH"),
    source("a path with a variable", "pvc://models/$(YAIE_MODEL_FOLDER)", "write pvc://"),
    source("a path with a NUL", "pvc://models/a\0b", "write pvc://CLAIM/PATH"),
    source("a path with two slashes", "pvc://models//a", "write pvc://CLAIM/PATH"),
    source("a claim with two dots", "pvc://a..b/x", "write pvc://CLAIM/PATH"),
    source("a claim of nothing", "pvc:///etc", "write pvc://CLAIM/PATH"),
    source("a file that climbs", "file:///models/../etc/passwd", "pvc://CLAIM/PATH"),
    source("a file on another host", "file://host/models", "pvc://CLAIM/PATH"),
    source("a repository with a shell", "hf://a/b;reboot", "write hf://ORG/NAME"),
    source("a repository that climbs", "hf://../..", "write hf://ORG/NAME"),
    source("a repository like a flag", "hf://-a/--b", "write hf://ORG/NAME"),
    source("a repository in Cyrillic", f"hf://qwen/{CYRILLIC}", "write hf://ORG/NAME"),
    source("a repository with an invisible letter", f"hf://a/b{ZERO_WIDTH}", "write hf://"),
    source("a repository with a query", "hf://a/b?x=1", "write hf://ORG/NAME"),
    source("a kind in upper case", "HF://a/b", "a source begins with its kind"),
    source("a source with a space before it", " hf://a/b", "a source begins with its kind"),
    source("a source that turns text around", f"{RTL}hf://a/b", "a source begins with its kind"),
    source("a built-in model that climbs", "builtin://../x", "write builtin://NAME"),
    source("a URL with a password", "https://me:secret@example.org/x", "begins with its kind"),
    Case(
        "a revision that climbs",
        spec("hf://a/b", model={"revision": "main/../../x"}),
        "write a branch, tag or commit",
    ),
    Case("a revision like a flag", spec("hf://a/b", model={"revision": "--x"}), "write a branch"),
    Case("a served name with a line break", spec(model={"servedName": "a\nb"}), "write a name"),
    Case("a served name like a flag", spec(model={"servedName": "--port"}), "write a name"),
    Case("an alias in full width", spec(model={"aliases": [FULL_WIDTH]}), "write a name"),
    Case("17 aliases", spec(model={"aliases": [f"a{n}" for n in range(17)]}), "aliases"),
    Case("a served name like a path", spec(model={"servedName": "a/../../b"})),
)
TEXTS = (
    *(Case(f"the flag {word}", args("--seed", word)) for word in SHELL),
    *(Case(f"the variable {word}", env(value=word)) for word in SHELL),
    Case("a flag with a NUL", args("--seed=\0"), "without control characters"),
    Case("a flag with an escape", args("\x1b[2J"), "without control characters"),
    Case("a flag with two lines", args("--seed=1\n--port=2")),
    Case("a flag in two scripts", args(f"--{CYRILLIC}{RTL}")),
    Case("a flag of 1,025 letters", args("a" * 1025), "engine.args[0]"),
    Case("many long flags", args(*["a" * 1024] * 17), "engine.args holds more than 16384"),
    Case("flags up to the limit", args(*["a" * 1024] * 16)),
    Case("a flag that the operator owns, with =", args("--host=::"), "does not take --host"),
    Case("a flag that is a number", spec(engine={"args": [8]}), "engine.args[0]"),
    Case("a variable with a NUL", env(value="a\0b"), "without control characters"),
    Case("a variable with a line break", env(value="a\nb")),
    Case("a variable of 4,097 letters", env(value="a" * 4097), "engine.env[0].value"),
    Case(
        "many long variables",
        spec(engine={"env": [{"name": f"A{n}", "value": "a" * 4096} for n in range(5)]}),
        "engine.env holds more than 16384",
    ),
    Case(
        "64 long variables of four bytes a letter",
        spec(engine={"env": [{"name": f"A{n}", "value": "\U0001f600" * 256} for n in range(64)]}),
    ),
    Case("a variable's name with =", env("A=B"), "write the name of a variable"),
    Case("a variable's name with a space", env("A B"), "write the name of a variable"),
    Case("a variable's name in Cyrillic", env(CYRILLIC), "write the name of a variable"),
    Case("the operator's variable in lower case", env("yaie_pod_name")),
    Case("a variable that the linker reads", env("LD_PRELOAD", "/models/x.so")),
    Case("a Secret that does not exist", secret(name="nobody", key="k")),
    Case("a Secret of another namespace", secret(name="other/x", key="k"), "name of an object"),
    Case("a Secret with two dots", secret(name="a..b", key="k"), "name of an object"),
    Case("a key that climbs", secret(name="a", key="../x"), "write a key of a Secret"),
    Case("a key of two dots", secret(name="a", key=".."), "write a key of a Secret"),
    Case("an image with a shell", spec(engine={"image": "a;reboot"}), "REGISTRY/NAME:TAG"),
    Case("an image with a scheme", spec(engine={"image": "https://a/b"}), "REGISTRY/NAME:TAG"),
    Case("an image in upper case", spec(engine={"image": "A/B"}), "REGISTRY/NAME:TAG"),
    Case("an image with an odd digest", spec(engine={"image": "a@sha256:1"}), "REGISTRY/NAME:TAG"),
    Case("an image with port, tag and digest", spec(
        engine={"image": f"reg.example:5000/a/b_c:v1@sha256:{'0' * 64}"})),
)  # fmt: skip
NUMBERS = (
    Case("as many replicas as fit no number", spec(replicas=2**63), "spec.replicas"),
    Case("half a replica", spec(replicas=0.5), "spec.replicas"),
    Case("replicas in words", spec(replicas="3"), "spec.replicas"),
    Case("replicas by yes and no", spec(replicas=True), "spec.replicas"),
    Case("a context beyond every number", spec(engine={"maxModelLen": 10**30}), "maxModelLen"),
    Case("a negative context", spec(engine={"maxModelLen": -1}), "maxModelLen"),
    Case("a fraction below nothing", spec(engine={"kvCache": {"memoryFraction": -0.5}}), "memoryF"),
    Case("a load factor beyond every number", spec(routing={"loadFactor": 1e308}), "loadFactor"),
    Case("a silence of no time", spec(routing={"timeoutSeconds": 0}), "timeoutSeconds"),
    Case("a drain of a year", spec(rollout={"drainSeconds": 31_536_000}), "drainSeconds"),
    Case("a deadline of no time", spec(rollout={"progressDeadlineSeconds": 0}), "progressDeadline"),
    Case("a million engines", autoscaled(max=1_000_000), "autoscaling.max"),
    Case("a target of nothing", autoscaled(max=2, target={"activeRequests": 0}), "activeRequests"),
    Case("half a byte", resources(memory="512m"), "16Gi or 512Mi"),
    Case("negative memory", resources(memory="-1Gi"), "16Gi or 512Mi"),
    Case("memory in exabytes", resources(memory="1Ei"), "16Gi or 512Mi"),
    Case("memory in powers of ten", resources(memory="1e9"), "16Gi or 512Mi"),
    Case("memory of many digits", resources(memory="9" * 5000 + "Gi"), "16Gi or 512Mi"),
    Case("memory with a space", resources(memory="16 Gi"), "16Gi or 512Mi"),
    Case("memory with a line break", resources(memory="16Gi\n"), "16Gi or 512Mi"),
    Case("processors in gigabytes", resources(cpu="4Gi"), "a number of CPUs"),
    Case("a ten-thousandth of a processor", resources(cpu="0.0001"), "a number of CPUs"),
    Case("processors in full-width digits", resources(cpu="\uff14"), "a number of CPUs"),
    Case("processors beyond every number", resources(cpu=10**18), "spec.resources.cpu"),
    Case("no processor", resources(cpu=0)),
    Case("GPUs in thousands", resources(gpu={"count": 1000}), "gpu.count"),
)
PLACEMENT = (
    Case("a label of 64 letters", resources(nodeSelector={"a" * 64: "b"}), "label's name"),
    Case("a label with two slashes", resources(nodeSelector={"a/b/c": "d"}), "label's name"),
    Case("a label with two dots", resources(nodeSelector={"a..b/c": "d"}), "label's name"),
    Case("a label in upper-case domain", resources(nodeSelector={"A.B/c": "d"}), "label's name"),
    Case("a label without a name", resources(nodeSelector={"": "d"}), "label's name"),
    Case("a label with a line break", resources(nodeSelector={"a\n": "d"}), "label's name"),
    Case("a label of the longest name", resources(nodeSelector={"a" * 63: "b" * 63})),
    Case("a label's value with a slash", resources(nodeSelector={"a": "b/c"}), "value of a label"),
    Case("a label's value of 64 letters", resources(nodeSelector={"a": "b" * 64}), "nodeSelector"),
    Case("a label's value that is a number", resources(nodeSelector={"a": 1}), "nodeSelector"),
    Case(
        "33 labels",
        resources(nodeSelector={f"a{n}": "b" for n in range(33)}),
        "nodeSelector",
    ),
    Case(
        "a taint with two slashes",
        resources(tolerations=[{"key": "a/b/c", "operator": "Exists"}]),
        "name of a label",
    ),
    Case(
        "a taint of an empty key",
        resources(tolerations=[{"key": "", "operator": "Exists"}]),
        "name of a label",
    ),
    Case(
        "a taint with an unknown effect",
        resources(tolerations=[{"key": "a", "operator": "Exists", "effect": "NoRun"}]),
        "effect",
    ),
    Case("33 taints", resources(tolerations=[{"operator": "Exists"}] * 33), "tolerations"),
    Case("a class with two dots", resources(priorityClassName="a..b"), "name of an object"),
    Case("a class in upper case", resources(runtimeClassName="NVIDIA"), "name of an object"),
    Case("a class that does not exist", resources(runtimeClassName="nobody")),
)
NAMES = (
    named("the longest name", "a" + "-" * 38 + "b"),
    named("a name with a hyphen at its end", "a-", "metadata.name"),
    named("a name in upper case", "Demo", "metadata.name"),
    named("a name in Cyrillic", CYRILLIC, "metadata.name"),
    named("a name with a slash", "a/b", "metadata.name"),
    named("a name with a shell", "a;reboot", "metadata.name"),
    named("a name of 300 letters", "a" * 300, "metadata.name"),
    named("a name of the router's Secret", "yaie-router-keys", "belong to the router"),
    named("the operator's name", "yaie-operator"),
)
UNKNOWN = (
    Case("a field of a Pod", spec(hostNetwork=True), "hostNetwork"),
    Case("a status in the spec", spec(status={"phase": "Ready"}), "status"),
    Case("a field in other letters", spec(Replicas=1), "Replicas"),
    Case("a spec that is a list", {"model": []}, "spec.model"),  # type: ignore[arg-type]
    Case("a source that is a map", {"model": {"source": {"a": "b"}}}, "spec.model.source"),
    Case("a source that is nothing", {"model": {"source": None}}, "spec.model.source"),
    Case("a prototype", spec(__proto__={"a": 1}), "__proto__"),
)


SAMPLES = {
    "object": {"a": {"b": "c"}}, "objects": [{"name": "a", "image": "b"}], "string": "a",
    "strings": ["a"], "boolean": True, "integer": 5,
}  # fmt: skip


def pod(**given: Any) -> dict[str, Any]:
    return spec(podTemplate={"spec": given})


def engine(**given: Any) -> dict[str, Any]:
    return pod(containers=[{"name": "engine", **given}])


def volume(name: str = "a", **given: Any) -> dict[str, Any]:
    return pod(volumes=[{"name": name, **given}])


def mount(path: str, name: str = "a", **more: Any) -> dict[str, Any]:
    mounts = [{"name": name, "mountPath": path, **more}]
    return pod(volumes=[{"name": "a"}], containers=[{"name": "engine", "volumeMounts": mounts}])


def metadata(**given: Any) -> dict[str, Any]:
    return spec(podTemplate={"metadata": given})


def near(**term: Any) -> dict[str, Any]:
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", **term}]}]}
    return pod(affinity={"nodeAffinity": {rule: terms}})


REFUSED_FIELDS = (
    *(
        Case(f"a pod's {name}", pod(**{name: SAMPLES[kind]}), f"{name}: {instead}")
        for name, (kind, instead) in pod_template.REFUSED_IN_SPEC.items()
    ),
    *(
        Case(f"a container's {name}", engine(**{name: SAMPLES[kind]}), f"{name}: {instead}")
        for name, (kind, instead) in pod_template.REFUSED_IN_CONTAINER.items()
    ),
    *(
        Case(f"a volume of the kind {name}", volume(**{name: SAMPLES[kind]}), f"{name}: {instead}")
        for name, (kind, instead) in pod_template.REFUSED_VOLUMES.items()
    ),
)
PODS = (
    Case("a second container", pod(containers=[{"name": "miner"}]), "pods of its own"),
    Case("a misspelt field of a pod", pod(afinity={}), "afinity"),
    Case("a volume from two places", volume(emptyDir={}, configMap={"name": "a"}), "one place"),
    Case("a volume of the operator's name", volume("cache"), "choose another name"),
    Case("a volume twice", pod(volumes=[{"name": "a"}, {"name": "a"}]), "volumes[1]"),
    Case("a volume of 64 letters", volume("a" * 64), "volumes[0].name"),
    Case("a mount of a volume that is not there", mount("/a", "b"), "add the volume there"),
    Case("a mount over the root", mount("/"), "a path from the root"),
    Case("a mount over the processes", mount("/proc/1"), "the engine's own"),
    Case("a mount over the weights", mount("/models"), "the engine's own"),
    Case("a mount over the cache", mount("/cache"), "the engine's own"),
    Case("a mount below the cache", mount("/cache/huggingface")),
    Case("a mount that climbs", mount("/a/../proc"), "a path from the root"),
    Case("a mount of a relative path", mount("a"), "a path from the root"),
    Case("a mount with a colon", mount("/a:/b"), "a path from the root"),
    Case("a folder that leaves its volume", mount("/a", subPath="../b"), "a path without"),
    Case("a folder from a variable", mount("/a", subPathExpr="$(A)"), "write subPath instead"),
    Case("a mount that spreads", mount("/a", mountPropagation="Bidirectional"), "leave it out"),
    Case("a label of the operator", metadata(labels={"yaie.dev/model": "b"}), "another key"),
    Case(
        "a label that the operator sets",
        metadata(labels={"app.kubernetes.io/name": "b"}),
        "choose another key",
    ),
    Case("a label with a space in it", metadata(labels={"a": "b c"}), "the value of a label"),
    Case(
        "an annotation without confinement",
        metadata(annotations={"container.apparmor.security.beta.kubernetes.io/engine": "x"}),
        "leave them out",
    ),
    Case(
        "an annotation of kubectl",
        metadata(annotations={"kubectl.kubernetes.io/restartedAt": "now"}),
        "choose another key",
    ),
    Case(
        "a quarter of a mebibyte of annotations",
        metadata(annotations={f"a{n}": "b" * 4096 for n in range(32)}),
        "more than 16384 characters",
    ),
    Case("a node of no value", near(operator="In"), "write at least one"),
    Case("a node with a value too many", near(operator="Exists", values=["a"]), "remove them"),
    Case("a node above a word", near(operator="Gt", values=["a"]), "one whole number"),
    Case("a node of no term", pod(affinity={"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}), "Terms"),
    Case("a pull secret twice", pod(imagePullSecrets=[{"name": "a"}] * 2), "imagePullSecrets[1]"),
    Case("a resolver of nothing", pod(dnsPolicy="None"), "write dnsConfig.nameservers"),
    Case("a resolver of the host's network", pod(dnsPolicy="ClusterFirstWithHostNet"), "dnsPolicy"),
    Case("a resolver by name", pod(dnsConfig={"nameservers": ["dns.example"]}), "an address"),
    Case("an address with a zero before it", pod(
        hostAliases=[{"ip": "010.0.0.1", "hostnames": ["a"]}]), "an address"),
    Case("an address of no name", pod(hostAliases=[{"ip": "10.0.0.1"}]), "hostnames"),
    Case("a spread of no skew", pod(topologySpreadConstraints=[
        {"maxSkew": 0, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}]), "maxSkew"),
    Case("a spread with domains in vain", pod(topologySpreadConstraints=[
        {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2},
    ]), "remove minDomains"),
)  # fmt: skip

HOSTILE = (
    *PLACES, *TEXTS, *NUMBERS, *PLACEMENT, *NAMES, *UNKNOWN, *REFUSED_FIELDS, *PODS,
)  # fmt: skip
