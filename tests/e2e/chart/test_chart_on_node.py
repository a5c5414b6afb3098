"""The life of a release on a real node: it tests itself, and an upgrade loses no request."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import openai
import pytest

from e2e.support import OPERATOR_NAMESPACE, ROOT, Cluster, Demo, ask, until
from yaie_api import names

pytestmark = pytest.mark.e2e
CLIENTS = 3


def helm(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    plane = cluster.control_plane
    command = [plane.programs / "helm", "--kubeconfig", plane.kubeconfig, *arguments]
    return subprocess.run(
        [*command, "-n", OPERATOR_NAMESPACE],
        capture_output=True,
        text=True,
        timeout=330,
        check=False,
    )


def upgrade(cluster: Cluster, **values: object) -> None:
    """`helm upgrade` with some values changed, until the operator has been replaced."""
    changed = [f"{name}={json.dumps(value)}" for name, value in values.items()]
    flags = [word for one in changed for word in ("--set-json", one)]
    chart = str(ROOT / "charts" / "yaie")
    done = helm(cluster, "upgrade", "yaie", chart, "--reuse-values", *flags)
    assert done.returncode == 0, done.stderr
    rollout = ("rollout", "status", "deployment/yaie-operator", "-n", OPERATOR_NAMESPACE)
    cluster.kubectl(*rollout, "--timeout=120s", timeout_s=130)


def test_helm_test_gets_an_answer_from_a_model_and_leaves_nothing(cluster: Cluster) -> None:
    done = helm(cluster, "test", "yaie", "--timeout", "5m", "--logs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "yaie-test answered after " in done.stdout
    made = ("get", "ym,pods", "-l", "app.kubernetes.io/component=test", "-n", OPERATOR_NAMESPACE)
    until(lambda: not cluster.kubectl(*made), "the test's objects to go")
    until(
        lambda: names.ROUTER not in cluster.kubectl("get", "deploy", "-n", OPERATOR_NAMESPACE),
        "the router of the namespace to go with its last model",
    )


@contextmanager
def traffic(demo: Demo) -> Iterator[list[str]]:
    """Clients that ask without a pause while the block runs: what became of each request."""
    outcomes: list[str] = []
    stop = threading.Event()

    def client(number: int) -> None:
        with demo.client() as openai_client:
            while not stop.is_set():
                try:
                    outcomes.append(ask(openai_client, f"{number}: a river?").finish_reason)
                except openai.OpenAIError as error:
                    outcomes.append(repr(error))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield outcomes
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_an_upgrade_that_replaces_operator_and_routers_loses_no_request(demo: Demo) -> None:
    cluster, place = demo.cluster, ("-n", demo.namespace)
    engines = demo.pods()

    def routers() -> set[str]:
        selector = ("-l", f"{names.LABEL_COMPONENT}={names.COMPONENT_ROUTER}")
        found = cluster.kubectl.get("pods", *selector, *place)
        return {pod["metadata"]["name"] for pod in found["items"]}

    before = routers()
    note = {"upgraded": "true"}
    try:
        with traffic(demo) as outcomes:
            upgrade(
                cluster,
                **{
                    "operator.podAnnotations": note,
                    "router.podAnnotations": note,
                    "router.replicas": 2,
                },
            )
            until(lambda: len(routers()) == 2 and not routers() & before, "two new routers")
            time.sleep(2)
        assert set(outcomes) <= {"stop", "length"}, [
            one for one in outcomes if one not in {"stop", "length"}
        ]
        assert len(outcomes) > 20
        assert demo.pods() == engines, "an upgrade restarts no engine"
        assert cluster.kubectl("get", "pdb", names.ROUTER, *place)
    finally:
        upgrade(
            cluster,
            **{
                "operator.podAnnotations": None,
                "router.podAnnotations": None,
                "router.replicas": 1,
            },
        )
    until(lambda: len(routers()) == 1, "one router")
    budgets = ("get", "pdb", "-l", f"{names.LABEL_COMPONENT}={names.COMPONENT_ROUTER}", *place)
    until(lambda: not cluster.kubectl(*budgets), "the budget to go")
    demo.wait_ready()


def test_the_policies_of_a_namespace_are_there_and_are_put_back(demo: Demo) -> None:
    """Stored as they should be; whether they are enforced is the network plugin's matter."""
    kubectl, place = demo.cluster.kubectl, ("-n", demo.namespace)

    def policy() -> dict[str, object]:
        found: dict[str, object] = kubectl.get("networkpolicy", names.ENGINES, *place)["spec"]
        return found

    wanted = policy()
    assert kubectl.get("networkpolicy", names.ROUTER, *place)["spec"]["ingress"]
    opened = json.dumps({"spec": {"ingress": [{}]}})
    kubectl("patch", "networkpolicy", names.ENGINES, *place, "--type=merge", "-p", opened)
    until(lambda: policy() == wanted, "the opened policy to be closed", timeout_s=30)
