"""A model is updated, and its router and the operator restart, while streams run: none is lost."""

import json

import pytest

from e2e.support import OPERATOR_NAMESPACE, Demo, until
from fakes.streaming_load import Load
from yaie_api import names

pytestmark = pytest.mark.e2e


def test_an_update_and_restarts_of_router_and_operator_drop_no_stream(demo: Demo) -> None:
    old = demo.pods()
    with demo.client() as client, Load(client.base_url.port or 80).running(clients=2) as load:
        load.more(4)
        _change(demo, {"engine": {"maxNumSeqs": 9}})
        assert not set(old) & set(demo.pods()), "the engine is another one"
        load.more(4)
        _restart(demo, names.ROUTER, demo.namespace)
        load.more(4)
        _restart(demo, "yaie-operator", OPERATOR_NAMESPACE)
        load.more(4)
        _change(demo, {"engine": {"maxNumSeqs": None}})
        load.more(4)
    assert load.failures == []
    assert demo.get()["status"]["rollout"]["step"] == "Complete"


def _change(demo: Demo, spec: dict[str, object]) -> None:
    """Patch the spec, and wait until only engines of the new one run."""
    patch = ("patch", f"ym/{demo.name}", "--type=merge", "-p", json.dumps({"spec": spec}))
    demo.cluster.kubectl(*patch, "-n", demo.namespace)
    demo.wait_ready()
    until(lambda: len(demo.pods()) == 1, "the old engine's end")


def _restart(demo: Demo, deployment: str, namespace: str) -> None:
    kubectl = demo.cluster.kubectl
    kubectl("rollout", "restart", f"deployment/{deployment}", "-n", namespace)
    wait = ("rollout", "status", f"deployment/{deployment}", "-n", namespace, "--timeout=120s")
    kubectl(*wait, timeout_s=130)
