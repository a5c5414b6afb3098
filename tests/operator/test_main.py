import json
import subprocess
import sys
from collections.abc import Mapping

import pytest

from yaie_operator import rbac
from yaie_operator.__main__ import Options, main, options, parser
from yaie_operator.config import OperatorConfig


def chosen(*argv: str, env: Mapping[str, str] | None = None) -> Options:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("YAIE_NAMESPACES", "YAIE_LEADER_ELECT", "YAIE_POD_NAME", "YAIE_POD_NAMESPACE"):
            patch.delenv(name, raising=False)
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        return options(parser().parse_args(argv))


def test_a_pods_environment_says_everything() -> None:
    found = chosen(
        env={
            "YAIE_NAMESPACES": "chat, research,",
            "YAIE_ENGINE_IMAGE": "engine:1",
            "YAIE_ROUTER_IMAGE": "control-plane:1",
            "YAIE_IMAGE_PULL_POLICY": "Never",
            "YAIE_ROUTER_REPLICAS": "2",
            "YAIE_PROMETHEUS_URL": "http://prometheus:9090",
            "YAIE_METRICS_KEY": "secret",
            "YAIE_TRACING_ENDPOINT": "http://collector:4318",
            "YAIE_TRACING_SAMPLING_RATIO": "0.05",
            "YAIE_ROUTER_MAX_PENDING": "9",
            "YAIE_ROUTER_PENDING_TIMEOUT_SECONDS": "90",
            "YAIE_ROUTER_SERVICE_TYPE": "NodePort",
            "YAIE_ROUTER_ALLOWED_ORIGINS": "https://a.example,http://localhost:3000",
            "YAIE_ROUTER_KEYS_SECRET": "yaie-keys",
            "YAIE_ROUTER_TENANT_LIMITS": "yaie-limits",
            "YAIE_ROUTER_TLS_SECRET": "yaie-tls",
            "YAIE_POD_NAME": "yaie-operator-1",
            "YAIE_POD_NAMESPACE": "yaie-system",
        }
    )
    assert found.config == OperatorConfig(
        namespaces=("chat", "research"),
        engine_image="engine:1",
        router_image="control-plane:1",
        image_pull_policy="Never",
        router_replicas=2,
        prometheus_url="http://prometheus:9090",
        metrics_key="secret",
        tracing_endpoint="http://collector:4318",
        tracing_sampling_ratio=0.05,
        router_max_pending=9,
        router_pending_timeout_s=90,
        router_service_type="NodePort",
        router_allowed_origins=("https://a.example", "http://localhost:3000"),
        router_keys_secret="yaie-keys",
        router_tenant_limits="yaie-limits",
        router_tls_secret="yaie-tls",
        endpoint_format="https://yaie-router.{namespace}.svc:8000/v1",
    )
    assert (found.identity, found.lease_namespace) == ("yaie-operator-1", "yaie-system")
    assert found.leader_elect


def test_flags_win_over_the_environment() -> None:
    found = chosen(
        *("--namespaces", "a", "--leader-elect", "false", "--engine-image", "e:2"),
        env={"YAIE_NAMESPACES": "b", "YAIE_LEADER_ELECT": "true", "YAIE_ENGINE_IMAGE": "e:1"},
    )
    assert found.config.namespaces == ("a",)
    assert found.config.engine_image == "e:2"
    assert not found.leader_elect


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("YAIE_ROUTER_REPLICAS", "0"),
        ("YAIE_ROUTER_REPLICAS", "two"),
        ("YAIE_ROUTER_MAX_PENDING", "-1"),
        ("YAIE_PROMETHEUS_URL", "prometheus:9090"),
        ("YAIE_TRACING_ENDPOINT", "collector:4317"),
        ("YAIE_TRACING_SAMPLING_RATIO", "2"),
        ("YAIE_TRACING_SAMPLING_RATIO", "all"),
        ("YAIE_IMAGE_PULL_POLICY", "Sometimes"),
        ("YAIE_ROUTER_SERVICE_TYPE", "External"),
        ("YAIE_ROUTER_KEYS_SECRET", "Team_Keys"),
        ("YAIE_ROUTER_KEYS_SECRET", "yaie-router-keys"),
        ("YAIE_ROUTER_ALLOWED_ORIGINS", "a.example"),
    ],
)
def test_a_wrong_variable_is_named(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    assert main([]) == 2
    assert name in capsys.readouterr().err


def test_the_needed_rights_are_printed_for_review(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print-rbac"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(rbac.ALL))


def test_no_right_is_wider_than_it_must_be() -> None:
    for rule in (*rbac.OPERATOR, *rbac.LEASES, *rbac.ROUTER):
        assert "*" not in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])
        rights = {"secrets", "serviceaccounts", "rolebindings", "clusterroles"}
        if rule["resources"] == ["jobs"]:  # a Job's pod cannot change: another one replaces it
            continue
        if "delete" in rule["verbs"] or rights.intersection(rule["resources"]):
            assert rule["resourceNames"]


def test_help_shows_examples_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['x', '--help']\n"
        "import runpy\n"
        "try: runpy.run_module('yaie_operator', run_name='__main__', alter_sys=True)\n"
        "except SystemExit: pass\n"
        "print(sorted({'kopf', 'kubernetes', 'aiohttp', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "examples:" in done.stdout
    assert done.stdout.endswith("[]\n")
    assert done.stderr == ""


def test_missing_credentials_are_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["--kubeconfig", "/nonexistent/kubeconfig", "--port", "0"]) == 1
    error = capsys.readouterr().err
    assert "/nonexistent/kubeconfig" in error
    assert "Traceback" not in error
