"""The chart's life on a real API server: installed, removed, installed again elsewhere."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.control_plane import ControlPlane

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "yaie"
TYPE = "inferencemodels.yaie.dev"
Helm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def helm(control_plane: ControlPlane, programs: Path) -> Helm:
    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [programs / "helm", "--kubeconfig", control_plane.kubeconfig, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    return run


def test_after_an_uninstall_another_namespace_takes_the_kept_type_over(
    control_plane: ControlPlane, helm: Helm
) -> None:
    # Roles that other tests have left are taken over, too.
    first = ("install", "yaie", CHART, "-n", "first", "--create-namespace", "--take-ownership")
    assert helm(*first).returncode == 0
    assert helm("uninstall", "yaie", "-n", "first").returncode == 0
    again = ("install", "yaie", CHART, "-n", "second", "--create-namespace")
    assert "invalid ownership metadata" in helm(*again).stderr
    taken = helm(*again, "--take-ownership")
    assert taken.returncode == 0, taken.stderr
    may = control_plane.kubectl(
        "get", "clusterrole", "admin", "-o", "jsonpath={.rules[*].resources}"
    )
    assert "inferencemodels/scale" in may, "an admin of a namespace may create and scale models"
    assert helm("uninstall", "yaie", "-n", "second").returncode == 0
    control_plane.kubectl("delete", "crd", TYPE)


def test_helm_takes_over_what_the_plain_file_installed_and_every_model_stays(
    control_plane: ControlPlane, helm: Helm
) -> None:
    kubectl = control_plane.kubectl
    kubectl("apply", "--server-side", "--force-conflicts", "-f", ROOT / "manifests/install.yaml")
    kubectl("wait", "--for=condition=Established", f"crd/{TYPE}", "--timeout=30s")
    place = control_plane.new_namespace("kept")
    kubectl("apply", "-f", ROOT / "manifests/samples/demo.yaml", "-n", place)
    uid = kubectl.get("ym", "demo", "-n", place)["metadata"]["uid"]
    # With server-side applies, Helm 4 would find each field in kubectl's hands, now and at every
    # later change; how a release was installed is also how it is upgraded.
    take = ("install", "yaie", CHART, "-n", "yaie-system", "--take-ownership")
    taken = helm(*take, "--server-side=false")
    assert taken.returncode == 0, taken.stderr
    # From here on it is a release like any other.
    changed = helm(*("upgrade", "yaie", CHART, "-n", "yaie-system", "--set=operator.replicas=2"))
    assert changed.returncode == 0, changed.stderr
    operator = kubectl.get("deployment", "yaie-operator", "-n", "yaie-system")
    assert operator["spec"]["replicas"] == 2
    assert helm("uninstall", "yaie", "-n", "yaie-system").returncode == 0
    assert kubectl.get("ym", "demo", "-n", place)["metadata"]["uid"] == uid
    kubectl("delete", "ns", place, "yaie-system", "--wait=false")
    kubectl("delete", "crd", TYPE)
