"""A restarted operator finds everything as it should be, and writes nothing."""

import time

import pytest

from e2e.support import OPERATOR_NAMESPACE, OPERATOR_USER, Demo, ask

pytestmark = pytest.mark.e2e

WATCHED_S = 80
"""Longer than the operator's full resync."""
SETTLED_S = 3
"""The operator's next look at a model that has just become ready may be half a second away."""


def test_a_restarted_operator_with_nothing_changed_writes_nothing(demo: Demo) -> None:
    audit = demo.cluster.audit
    if audit is None:
        pytest.skip("a cluster of the user keeps no audit log that this test could read")
    kubectl = demo.cluster.kubectl
    time.sleep(SETTLED_S)
    pods = demo.pods()
    version = demo.get()["metadata"]["resourceVersion"]
    mark = audit.mark()
    kubectl("rollout", "restart", "deployment/yaie-operator", "-n", OPERATOR_NAMESPACE)
    rollout = ("rollout", "status", "deployment/yaie-operator", "-n", OPERATOR_NAMESPACE)
    kubectl(*rollout, "--timeout=120s", timeout_s=130)
    with demo.client() as client:
        assert ask(client, "Do you still answer?").text
    time.sleep(WATCHED_S)

    leases = audit.writes_since(mark, user=OPERATOR_USER, leases=True)
    assert leases, "the new operator holds the Lease: it has run"
    # Other tests' namespaces may still be ending, and what they shared is deleted then.
    active = "jsonpath={.items[?(@.status.phase=='Active')].metadata.name}"
    alive = kubectl("get", "namespaces", "-o", active).split()
    writes = audit.writes_since(mark, user=OPERATOR_USER)
    assert [write for write in writes if write.namespace in ("", *alive)] == []
    assert demo.pods() == pods
    assert demo.get()["metadata"]["resourceVersion"] == version
