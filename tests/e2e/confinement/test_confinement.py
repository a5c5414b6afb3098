"""The pods run with the least they need, as the kernel and the API server see it."""

import pytest

from cluster.control_plane import Kubectl, KubectlError
from e2e.support import OPERATOR_NAMESPACE, Demo
from yaie_api import names

pytestmark = pytest.mark.e2e

PROBE = "import os; print(os.getuid()); open('/opt/yaie/probe', 'w')"


def refused(kubectl: Kubectl, *target: str) -> str:
    with pytest.raises(KubectlError) as error:
        kubectl("exec", *target, "--", "python", "-c", PROBE)
    return str(error.value)


def test_no_pod_can_write_to_its_image(demo: Demo) -> None:
    kubectl = demo.cluster.kubectl
    for target in (
        (demo.pods()[0], "-n", demo.namespace),
        (f"deployment/{names.ROUTER}", "-n", demo.namespace),
        ("deployment/yaie-operator", "-n", OPERATOR_NAMESPACE),
    ):
        assert "Read-only file system" in refused(kubectl, *target)
        user = kubectl("exec", *target, "--", "python", "-c", "import os; print(os.getuid())")
        assert user.strip() == "65532"


def test_engines_hold_no_token_of_the_cluster(demo: Demo) -> None:
    path = "/var/run/secrets/kubernetes.io"
    code = f"import os; print(os.path.exists('{path}'))"
    (pod, *_) = demo.pods()
    shown = demo.cluster.kubectl("exec", pod, "-n", demo.namespace, "--", "python", "-c", code)
    assert shown.strip() == "False"


def test_the_operator_reads_no_secret_but_the_routers(demo: Demo) -> None:
    whom = f"--as=system:serviceaccount:{OPERATOR_NAMESPACE}:yaie-operator"

    def may(*what: str) -> bool:
        try:
            return demo.cluster.kubectl("auth", "can-i", *what, whom).strip() == "yes"
        except KubectlError:  # "no" is an exit code
            return False

    assert may("get", f"secrets/{names.ROUTER_SECRET}", "-n", demo.namespace)
    assert not may("get", "secrets/other", "-n", demo.namespace)
    assert not may("list", "secrets", "-n", demo.namespace)
    assert not may("create", "pods/exec", "-n", demo.namespace)
    assert not may("bind", "clusterroles/cluster-admin")
