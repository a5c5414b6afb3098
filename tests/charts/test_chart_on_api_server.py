"""The chart's life on a real API server: installed, removed, installed again elsewhere."""

import subprocess
from pathlib import Path

import pytest

from cluster.control_plane import ControlPlane

pytestmark = pytest.mark.cluster
CHART = Path(__file__).parents[2] / "charts" / "yaie"


def test_after_an_uninstall_another_namespace_takes_the_kept_type_over(
    control_plane: ControlPlane, programs: Path
) -> None:
    def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [programs / "helm", "--kubeconfig", control_plane.kubeconfig, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

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
    control_plane.kubectl("delete", "crd", "inferencemodels.yaie.dev")
