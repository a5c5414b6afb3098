"""The test cluster itself works as its users expect."""

import json
from pathlib import Path

import pytest

from cluster.audit import Request
from cluster.control_plane import ControlPlane, Kubectl, KubectlError

pytestmark = pytest.mark.cluster


def test_a_control_plane_answers_its_administrator(control_plane: ControlPlane) -> None:
    version = json.loads(control_plane.kubectl("version", "-o", "json"))
    assert int(version["serverVersion"]["minor"].rstrip("+")) >= 29


def test_the_audit_log_tells_who_wrote_what(control_plane: ControlPlane) -> None:
    if control_plane.audit is None:
        pytest.skip("a cluster of the user keeps no audit log that this test could read")
    mark = control_plane.audit.mark()
    namespace = control_plane.new_namespace("audited")
    control_plane.kubectl("get", "configmaps", "-n", namespace)
    writes = control_plane.audit.writes_since(mark, user="admin")
    assert [(write.verb, write.resource, write.name) for write in writes] == [
        ("create", "namespaces", namespace)
    ]
    assert isinstance(writes[0], Request)
    assert control_plane.audit.writes_since(control_plane.audit.mark()) == []


def test_a_service_account_acts_with_its_own_rights_alone(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    namespace = control_plane.new_namespace("rights")
    control_plane.kubectl("create", "serviceaccount", "someone", "-n", namespace)
    path = control_plane.kubeconfig_for("someone", namespace, tmp_path / "kubeconfig")
    someone = Kubectl(control_plane.kubectl.program, path)
    with pytest.raises(KubectlError, match=r"system:serviceaccount:.*:someone.*cannot list"):
        someone("get", "secrets", "-n", namespace)
