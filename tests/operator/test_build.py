import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.fake_cluster import inference_model
from yaie_api import names
from yaie_operator.cluster import Object
from yaie_operator.config import OperatorConfig
from yaie_operator.installation import NetworkSettings
from yaie_operator.model import ServedModel
from yaie_operator.resources import model_objects, router_objects
from yaie_operator.resources.engine import arguments, hash_of
from yaie_operator.watch import kinds

CONFIG = OperatorConfig(engine_image="engine:1", router_image="control-plane:1")


def model(**spec: Any) -> ServedModel:
    obj = inference_model(**spec)
    obj["metadata"]["uid"] = "u"
    return ServedModel.parse(obj)


def deployment(
    of: ServedModel, *, config: OperatorConfig = CONFIG, observed: Object | None = None
) -> Object:
    return model_objects(of, config, deployment=observed)[-1]


def pod(of: ServedModel) -> Any:
    return deployment(of)["spec"]["template"]["spec"]


def container(of: ServedModel) -> Any:
    return pod(of)["containers"][0]


def test_the_engine_is_started_as_the_contract_says() -> None:
    engine = container(model())
    assert engine["command"] == ["yaie", "serve"]
    assert engine["args"] == [
        "builtin://yaie-demo", "--host", "0.0.0.0", "--port", "8000", "--device", "cpu",
        "--served-model-name", "demo", "--shutdown-timeout", "300",
    ]  # fmt: skip
    assert engine["image"] == "engine:1"


def test_every_engine_field_becomes_its_flag() -> None:
    spec = {
        "model": {
            "source": "hf://a/b", "revision": "v1", "servedName": "A/b", "aliases": ["c", "d"],
        },
        "engine": {
            "maxModelLen": 4096, "dtype": "bfloat16", "maxNumSeqs": 8,
            "kvCache": {"memoryFraction": 0.5, "pageSize": 32}, "args": ["--enforce-eager"],
        },
        "resources": {"gpu": {"count": 1}},
        "rollout": {"drainSeconds": 60},
    }  # fmt: skip
    assert arguments(model(**spec)) == [
        "hf://a/b", "--host", "0.0.0.0", "--port", "8000", "--device", "cuda",
        "--served-model-name", "A/b", "c", "d", "--shutdown-timeout", "60", "--revision", "v1",
        "--max-model-len", "4096", "--dtype", "bfloat16", "--max-num-seqs", "8",
        "--gpu-memory-utilization", "0.5", "--page-size", "32", "--enforce-eager",
    ]  # fmt: skip


def test_the_engine_understands_every_flag_that_it_is_given() -> None:
    from yaie.cli.main import build_parser

    spec = {
        "model": {"source": "hf://a/b", "revision": "v1", "aliases": ["c"]},
        "engine": {
            "maxModelLen": 4096, "dtype": "bfloat16", "maxNumSeqs": 8,
            "kvCache": {"memoryFraction": 0.5, "pageSize": 32},
        },
    }  # fmt: skip
    given = build_parser("serve").parse_args(["serve", *arguments(model(**spec))])
    assert given.model == "hf://a/b"
    assert given.served_model_name == ["demo", "c"]
    assert given.page_size == 32


def test_pods_meet_the_restricted_pod_security_standard() -> None:
    for spec in (pod(model()), _router()["spec"]["template"]["spec"]):
        security = spec["containers"][0]["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["readOnlyRootFilesystem"] is True
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()


def test_engines_hold_no_credentials_of_the_cluster() -> None:
    assert pod(model())["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod(model())


def test_scratch_folders_are_the_only_writable_places() -> None:
    mounts = {m["mountPath"]: m["name"] for m in container(model())["volumeMounts"]}
    volumes = {v["name"]: v for v in pod(model())["volumes"]}
    assert mounts == {"/tmp": "tmp", "/cache": "cache", "/dev/shm": "dshm"}
    assert all("emptyDir" in volumes[name] for name in mounts.values())
    env = {e["name"]: e.get("value") for e in container(model())["env"]}
    assert env["HF_HOME"] == "/cache/huggingface"


def test_engines_get_the_routers_prefix_key_and_start_without_it() -> None:
    env = {e["name"]: e for e in container(model())["env"]}
    given = env["YAIE_PREFIX_KEY"]["valueFrom"]["secretKeyRef"]
    routers = {e["name"]: e for e in container_env(_router())}["YAIE_PREFIX_KEY"]
    assert given == routers["valueFrom"]["secretKeyRef"] | {"optional": True}


def test_draining_fits_between_leaving_the_service_and_sigkill() -> None:
    drained = model(rollout={"drainSeconds": 60})
    pre_stop_s = container(drained)["lifecycle"]["preStop"]["sleep"]["seconds"]
    grace_s = pod(drained)["terminationGracePeriodSeconds"]
    assert grace_s > pre_stop_s + 60
    assert "60" in container(drained)["args"]


def test_probes_ask_the_contracts_paths_and_start_up_has_the_deadline() -> None:
    engine = container(model(rollout={"progressDeadlineSeconds": 61}))
    startup = engine["startupProbe"]
    assert startup["httpGet"] == {"path": "/readyz", "port": "http"}
    assert startup["periodSeconds"] * startup["failureThreshold"] == 62
    assert engine["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert engine["livenessProbe"]["httpGet"]["path"] == "/livez"


def test_resources_become_requests_and_only_memory_and_gpus_are_limited() -> None:
    resources = container(model(resources={"cpu": "2", "memory": "4Gi", "gpu": {"count": 1}}))
    assert resources["resources"] == {
        "requests": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"},
        "limits": {"memory": "4Gi", "nvidia.com/gpu": "1"},
    }
    assert "resources" not in container(model())


def test_scheduling_fields_are_passed_on() -> None:
    spec = pod(
        model(
            resources={
                "nodeSelector": {"gpu": "l4"},
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "priorityClassName": "high",
                "runtimeClassName": "nvidia",
            }
        )
    )
    assert spec["nodeSelector"] == {"gpu": "l4"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert (spec["priorityClassName"], spec["runtimeClassName"]) == ("high", "nvidia")


def test_a_gpus_type_is_a_label_that_its_node_must_have() -> None:
    asked = {"gpu": {"count": 1, "type": "NVIDIA-L4"}, "nodeSelector": {"zone": "a"}}
    spec = pod(model(resources=asked))
    assert spec["nodeSelector"] == {"zone": "a", "nvidia.com/gpu.product": "NVIDIA-L4"}


@pytest.mark.parametrize("replicas", [0, 1, 3])
def test_a_drain_of_nodes_evicts_one_engine_at_a_time_and_a_single_one_too(replicas: int) -> None:
    of = model(replicas=replicas)
    budget = model_objects(of, CONFIG, deployment=None)[1]
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    wanted = budget["spec"]["selector"]["matchLabels"].items()
    assert wanted <= deployment(of)["spec"]["template"]["metadata"]["labels"].items()


def test_a_volume_is_mounted_read_only_and_its_path_is_the_source() -> None:
    stored = model(model={"source": "pvc://weights/llama/3"})
    assert container(stored)["args"][0] == "$(YAIE_MODEL_FOLDER)/llama/3"
    assert {"name": "YAIE_MODEL_FOLDER", "value": "/models"} in container(stored)["env"]
    assert {
        "name": "model",
        "persistentVolumeClaim": {"claimName": "weights", "readOnly": True},
    } in pod(stored)["volumes"]
    assert {"name": "model", "mountPath": "/models", "readOnly": True} in container(stored)[
        "volumeMounts"
    ]
    whole = container(model(model={"source": "pvc://weights"}))
    assert whole["args"][0] == "$(YAIE_MODEL_FOLDER)"


def test_an_engine_knows_where_its_termination_message_goes() -> None:
    made = container(model())
    env = {e["name"]: e.get("value") for e in made["env"]}
    assert env["YAIE_TERMINATION_LOG"] == made["terminationMessagePath"] == "/dev/termination-log"
    assert made["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_secrets_reach_the_engine_by_name_only() -> None:
    secret = model(
        model={"source": "hf://a/b", "secretRef": {"name": "hf"}},
        engine={"env": [{"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
    )
    env = {e["name"]: e for e in container(secret)["env"]}
    assert env["HF_TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "hf", "key": "token"}}
    assert env["B"]["valueFrom"] == {"secretKeyRef": {"name": "s", "key": "k"}}


def test_a_users_variable_replaces_ours_instead_of_standing_beside_it() -> None:
    env = container(model(engine={"env": [{"name": "HF_HOME", "value": "/models/hf"}]}))["env"]
    assert [e for e in env if e["name"] == "HF_HOME"] == [
        {"name": "HF_HOME", "value": "/models/hf"}
    ]


def test_routers_and_engines_are_told_where_traces_go_unless_the_user_says_otherwise() -> None:
    config = replace(CONFIG, tracing_endpoint="http://collector:4318", tracing_sampling_ratio=0.05)
    told = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.05",
    }
    objects = router_objects("ns", config, secret=None, new_key=lambda: bytes(32))
    (router,) = [one for one in objects if one["kind"] == "Deployment"]
    own = model(engine={"env": [{"name": "OTEL_TRACES_SAMPLER_ARG", "value": "1"}]})
    for made, expected in (
        (router, told),
        (deployment(model(), config=config), told),
        (deployment(own, config=config), told | {"OTEL_TRACES_SAMPLER_ARG": "1"}),
        (deployment(model()), {}),
    ):
        env = made["spec"]["template"]["spec"]["containers"][0]["env"]
        found = [(one["name"], one["value"]) for one in env if one["name"].startswith("OTEL_")]
        assert sorted(found) == sorted(expected.items())


@pytest.mark.parametrize(
    "change",
    [
        {"engine": {"maxNumSeqs": 8}},
        {"resources": {"memory": "1Gi"}},
        {"rollout": {"drainSeconds": 1}},
        {"model": {"aliases": ["a"]}},
    ],
)
def test_what_an_engine_sees_changes_the_hash(change: dict[str, Any]) -> None:
    assert hash_of(model(**change)) != hash_of(model())


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 3},
        {"suspend": True},
        {"routing": {"policy": "RoundRobin"}},
        {"rollout": {"maxSurge": 2}},
        {"engine": {"maxNumSeqs": None}},
    ],
)
def test_what_an_engine_does_not_see_leaves_the_hash(change: dict[str, Any]) -> None:
    assert hash_of(model(**change)) == hash_of(model())


def test_the_recorded_template_stands_until_the_spec_asks_for_another() -> None:
    newer = OperatorConfig(engine_image="engine:2", image_pull_policy="Always")
    first = deployment(model())
    kept = deployment(model(replicas=5), config=newer, observed=first)
    assert kept["spec"]["template"] == first["spec"]["template"]
    changed = deployment(model(engine={"maxNumSeqs": 8}), config=newer, observed=first)
    assert changed["spec"]["template"]["spec"]["containers"][0]["image"] == "engine:2"


@pytest.mark.parametrize("damage", ["", "{", "[]", None])
def test_a_damaged_record_is_built_anew(damage: str | None) -> None:
    first = json.loads(json.dumps(deployment(model())))
    annotations = first["metadata"]["annotations"]
    if damage is None:
        annotations.clear()
    else:
        annotations["yaie.dev/template"] = damage
    assert deployment(model(), observed=first) == deployment(model())


def test_manifests_are_plain_json_and_the_same_each_time() -> None:
    for obj in (*model_objects(model(), CONFIG, deployment=None), *_shared()):
        assert json.loads(json.dumps(obj)) == obj
    assert deployment(model()) == deployment(model())


def test_the_service_is_labelled_so_that_routers_find_its_endpoint_slices() -> None:
    service = model_objects(model(), CONFIG, deployment=None)[0]
    labels = deployment(model())["spec"]["template"]["metadata"]["labels"]
    assert service["metadata"]["labels"][names.LABEL_MODEL] == "demo"
    assert service["metadata"]["labels"][names.LABEL_MANAGED_BY] == names.MANAGED_BY
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["ports"][0]["port"] == 8000


def _shared(secret: Object | None = None, key: bytes = bytes(32)) -> tuple[Object, ...]:
    return router_objects("ns", CONFIG, secret=secret, new_key=lambda: key)


def _router() -> Object:
    return _shared()[-1]


def test_the_registry_lists_every_object_that_is_built() -> None:
    whole = replace(CONFIG, router_replicas=2, network=NetworkSettings())
    for config in (CONFIG, whole):
        objects = router_objects("ns", config, secret=None, new_key=lambda: bytes(32))
        built = [(obj["kind"], obj["metadata"]["name"]) for obj in objects]
        wanted = [child for child in kinds.OF_NAMESPACE if child.wanted(config)]
        assert built == [(child.kind.kind, child.name) for child in wanted]
    assert wanted == list(kinds.OF_NAMESPACE)
    children = model_objects(model(), CONFIG, deployment=None)
    assert [obj["kind"] for obj in children] == [child.kind.kind for child in kinds.OF_MODEL]


def test_shared_objects_have_no_owner_whose_loss_would_take_them_along() -> None:
    for obj in _shared():
        assert "ownerReferences" not in obj["metadata"]


def test_the_router_binds_the_one_cluster_role_for_its_own_account() -> None:
    binding = next(o for o in _shared() if o["kind"] == "RoleBinding")
    assert binding["roleRef"]["name"] == names.ROUTER_CLUSTER_ROLE
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": names.ROUTER, "namespace": "ns"}
    ]


def test_a_stored_key_is_kept_and_a_broken_one_replaced() -> None:
    first = _shared(key=b"\x01" * 32)[0]
    assert base64.b64decode(first["data"]["prefix-key"]) == b"01" * 32
    assert _shared(secret=first, key=b"\x02" * 32)[0]["data"] == first["data"]
    for broken in ("", "!", base64.b64encode(b"short").decode()):
        replaced = _shared(secret={"data": {"prefix-key": broken}}, key=b"\x02" * 32)[0]
        assert base64.b64decode(replaced["data"]["prefix-key"]) == b"02" * 32


def test_the_router_understands_its_arguments_and_its_key() -> None:
    from yaie_router.config import parse

    container = _router()["spec"]["template"]["spec"]["containers"][0]
    secret = _shared(key=b"\x01" * 32)[0]
    env = {"YAIE_PREFIX_KEY": base64.b64decode(secret["data"]["prefix-key"]).decode()}
    parsed = parse(container["args"], env | {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert (parsed.namespace, parsed.host, parsed.port) == ("ns", "0.0.0.0", 8000)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": parsed.port, "metrics": parsed.metrics_port}
    assert parsed.drain_delay_s == 5
    assert parsed.prefix_key == b"\x01" * 32


def test_the_router_understands_the_origins_that_it_gets() -> None:
    from yaie_router.config import parse

    origins = ("https://a.example", "http://localhost:3000")
    config = replace(CONFIG, router_allowed_origins=origins)
    made = router_objects("ns", config, secret=None, new_key=lambda: bytes(32))
    container = made[-1]["spec"]["template"]["spec"]["containers"][0]
    env = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    parsed = parse(container["args"], env | {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert parsed.cors.origins == origins
    assert not any("ALLOW" in one["name"] for one in container_env(_router()))


def test_keys_and_limits_are_mounted_and_no_secret_lets_nobody_in() -> None:
    from yaie_router.config import parse

    config = replace(
        CONFIG,
        router_keys_secret="team-keys",
        router_tenant_limits="team-limits",
        router_replicas=3,
    )
    router = router_objects("ns", config, secret=None, new_key=lambda: bytes(32))[-1]
    pod = router["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    parsed = parse(container["args"], {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
    volumes = {one["name"]: one for one in pod["volumes"]}
    keys, limits = (mounts[str(folder)] for folder in (parsed.api_key_dir, parsed.limits_dir))
    assert keys["readOnly"] is limits["readOnly"] is True
    assert volumes[keys["name"]]["secret"] == {
        "secretName": "team-keys",
        "optional": True,
        "defaultMode": 0o440,
    }
    assert volumes[limits["name"]]["configMap"]["name"] == "team-limits"
    assert parsed.replicas == 3
    plain = _router()["spec"]["template"]["spec"]
    assert not any("secret" in one or "configMap" in one for one in plain["volumes"])


def test_a_certificate_makes_the_port_https_for_all_who_use_it() -> None:
    from yaie_router.config import parse

    config = replace(CONFIG, router_tls_secret="yaie-tls")
    *_, service, router = router_objects("ns", config, secret=None, new_key=lambda: bytes(32))
    pod = router["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    parsed = parse(container["args"], {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    (mount,) = (one for one in container["volumeMounts"] if one["name"] == "tls")
    assert parsed.ssl_certfile == Path(mount["mountPath"], "tls.crt")
    assert parsed.ssl_keyfile == Path(mount["mountPath"], "tls.key")
    (volume,) = (one for one in pod["volumes"] if one["name"] == "tls")
    assert volume["secret"] == {"secretName": "yaie-tls", "defaultMode": 0o440}
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    (port,) = service["spec"]["ports"]
    assert (port["name"], port["appProtocol"], port["port"]) == ("https", "https", 8000)
    assert port["targetPort"] in {one["name"] for one in container["ports"]}


def container_env(deployment: Object) -> list[dict[str, Any]]:
    env: list[dict[str, Any]] = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    return env
