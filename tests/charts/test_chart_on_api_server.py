"""The chart's life on a real API server: installed, removed, installed again elsewhere."""

import base64
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from cluster.control_plane import ControlPlane
from yaie_router.tenants.keys import keys_of
from yaie_router.tenants.limits import LimitBook, read_limits

pytestmark = [pytest.mark.cluster, pytest.mark.drill]
ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "yaie"
PLAIN = ROOT / "manifests" / "install.yaml"
TYPE = "inferencemodels.yaie.dev"
Helm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def bare(control_plane: ControlPlane) -> None:
    """Remove what other tests have left of an installation outside of namespaces: they share the
    cluster, and helm refuses to change what kubectl has applied.
    """
    objects = [each for each in yaml.safe_load_all(PLAIN.read_text()) if each]
    left = [
        f"{each['kind']}/{each['metadata']['name']}"
        for each in objects
        if each["kind"] != "Namespace" and "namespace" not in each["metadata"]
    ]
    control_plane.kubectl("delete", "--ignore-not-found", *left)


@pytest.fixture
def helm(control_plane: ControlPlane, programs: Path) -> Helm:
    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [programs / "helm", "--kubeconfig", control_plane.kubeconfig, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    return run


def test_after_an_uninstall_another_namespace_takes_the_kept_type_over(
    control_plane: ControlPlane, helm: Helm
) -> None:
    installed = helm("install", "yaie", CHART, "-n", "first", "--create-namespace")
    assert installed.returncode == 0, installed.stderr
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
    kubectl("apply", "--server-side", "--force-conflicts", "-f", PLAIN)
    kubectl("wait", "--for=condition=Established", f"crd/{TYPE}", "--timeout=30s")
    place = control_plane.new_namespace("kept")
    kubectl("apply", "-f", ROOT / "manifests/samples/demo.yaml", "-n", place)
    uid = kubectl.get("ym", "demo", "-n", place)["metadata"]["uid"]
    # Who tries without the flags is told so, and may still take it over: the second attempt leaves
    # a failed release. How a release was installed is also how it is upgraded.
    plainly = ("install", "yaie", CHART, "-n", "yaie-system")
    assert "invalid ownership metadata" in helm(*plainly).stderr
    assert 'conflicts with "kubectl"' in helm(*plainly, "--take-ownership").stderr
    take = ("upgrade", "--install", *plainly[1:], "--take-ownership")
    taken = helm(*take, "--server-side=false")
    assert taken.returncode == 0, taken.stderr
    # From here on it is a release like any other.
    changed = helm(*("upgrade", "yaie", CHART, "-n", "yaie-system", "--set=operator.replicas=2"))
    assert changed.returncode == 0, changed.stderr
    operator = kubectl.get("deployment", "yaie-operator", "-n", "yaie-system")
    assert operator["spec"]["replicas"] == 2
    assert helm("uninstall", "yaie", "-n", "yaie-system").returncode == 0
    assert kubectl.get("ym", "demo", "-n", place)["metadata"]["uid"] == uid
    kubectl("delete", "ns", place, "--wait=false")
    kubectl("delete", "crd", TYPE)


def test_the_lines_of_the_page_about_keys_make_keys_that_a_router_reads(
    control_plane: ControlPlane, programs: Path
) -> None:
    """As they are written, with the right namespace; each block is typed into one shell."""
    place = control_plane.new_namespace("chat")
    page = (ROOT / "docs" / "api-keys.md").read_text()
    lines = "".join(re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    script = lines.replace("-n chat", f"-n {place}") + 'echo "$key"\n'
    env = os.environ | {"KUBECONFIG": str(control_plane.kubeconfig)}
    env["PATH"] = f"{programs}:{env['PATH']}"
    typed = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert typed.returncode == 0, typed.stderr
    hashed = typed.stdout.split()[-1].encode()

    def entries(name: str) -> dict[str, bytes]:
        data = control_plane.kubectl.get("secret", name, "-n", place)["data"]
        return {tenant: base64.b64decode(value) for tenant, value in data.items()}

    limits = control_plane.kubectl.get("configmap", "yaie-limits", "-n", place)["data"]
    written = {tenant: entry.encode() for tenant, entry in limits.items()}
    book, wrong = read_limits(written, LimitBook())
    assert not wrong
    assert (book.default.tokens_per_minute, book.of("team-a").weight) == (100_000, 2)
    assert keys_of(entries("yaie-hashed-keys")).tenant_of(hashed) == "team-a"
    changed = keys_of(entries("yaie-keys"))
    for key in (b"sk-old-key-of-team-a", b"sk-new-key-of-team-a"):
        assert changed.tenant_of(key) == "team-a"
