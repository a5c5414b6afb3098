"""The pytest fixtures that hand out a cluster. `tests/conftest.py` loads them for every test.

`control_plane`  a real API server without a node, one for the whole test session
`programs`       the folder with kubectl, helm and the other binaries, nothing started

With YAIE_TEST_KUBECONFIG set, the tests use that cluster instead (a kind cluster, say).
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import binaries
from cluster import control_plane as control_planes
from cluster.control_plane import ControlPlane, Kubectl
from cluster.missing import MissingError, give_up

KUBECONFIG = "YAIE_TEST_KUBECONFIG"
USERS = {"control_plane", "programs", "node"}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the binaries before the first test's clock starts: from nothing it takes minutes."""
    wanted = any(USERS & set(getattr(item, "fixturenames", ())) for item in session.items)
    if not wanted or session.config.option.collectonly or binaries.location().exists():
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and shutil.which("go"):
        reporter.write_line("building the test cluster's Kubernetes, once per machine (~6 min) …")
    try:
        binaries.folder()
    except MissingError:
        return  # the fixture reports it for each test that asks


@pytest.fixture(scope="session")
def programs() -> Path:
    """Folder with kubectl, helm and the other programs of the test cluster."""
    try:
        return binaries.folder()
    except MissingError as missing:
        give_up(missing)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real Kubernetes API server, with its controllers and scheduler, and no node."""
    given = os.environ.get(KUBECONFIG)
    if given:
        yield existing(Path(given))
        return
    try:
        programs = binaries.folder()
    except MissingError as missing:
        give_up(missing)
    folder = tmp_path_factory.mktemp("control-plane")
    with control_planes.run(folder / "cluster", programs) as (running, _):
        yield running


def existing(kubeconfig: Path) -> ControlPlane:
    """The cluster that a kubeconfig names. It keeps no audit log that we could read."""
    found = shutil.which("kubectl")
    if found is None:
        give_up(MissingError(f"{KUBECONFIG} is set, but kubectl is not installed"))
    kubectl = Kubectl(Path(found), kubeconfig)
    view = ("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
    return ControlPlane(kubectl(*view), kubeconfig, kubectl, None, Path(found).parent)
