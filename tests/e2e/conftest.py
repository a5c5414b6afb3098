"""One node, one installation of the chart and one demo model for all scenarios of a session.

A scenario that changes the demo's scale sets it back; one that deletes models makes its own.
"""

import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from cluster import binaries, images
from cluster import node as nodes
from cluster.fixtures import KUBECONFIG, existing
from cluster.missing import MissingError, give_up
from cluster.node import Node
from e2e.support import OPERATOR_NAMESPACE, RESTRICTED, Cluster, Demo, install, state

SETTINGS = "YAIE_TEST_SETTINGS"
"""Chart values for a cluster of the user's own, as JSON: {"images.registry": "…"}."""

CLUSTER = pytest.StashKey[Cluster]()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A cluster of this machine with a Ready node that has the project's images."""
    try:
        nodes.check()
        programs = binaries.folder()
        layout = images.layout()
    except MissingError as missing:
        give_up(missing)
    folder = tmp_path_factory.mktemp("node")
    with nodes.run(folder, programs, layout) as running:
        yield running


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """A cluster with the chart installed."""
    given = os.environ.get(KUBECONFIG)
    if given:
        cluster = Cluster(existing(Path(given)), node_ports=False)
        settings = json.loads(os.environ.get(SETTINGS, "{}"))
    else:
        running: Node = request.getfixturevalue("node")
        cluster = Cluster(running.control_plane, node_ports=True)
        settings = {
            "images.registry": "localhost",
            "images.controlPlane.repository": "yaie-test/control-plane",
            "images.engine.repository": "yaie-test/engine",
            "router.serviceType": "NodePort",
        }
    cluster.kubectl.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPERATOR_NAMESPACE}}
    )
    cluster.kubectl("label", "--overwrite", "namespace", OPERATOR_NAMESPACE, RESTRICTED)
    request.config.stash[CLUSTER] = cluster
    install(cluster.control_plane, settings)
    return cluster


@pytest.fixture(scope="session")
def demo(cluster: Cluster) -> Iterator[Demo]:
    """The sample model, Ready, with one engine."""
    with cluster.namespace("demo") as namespace:
        demo = Demo(cluster, namespace)
        demo.deploy()
        yield demo


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what the cluster was doing."""
    report = yield
    cluster = item.config.stash.get(CLUSTER, None)
    if report.failed and cluster is not None:
        report.sections.append(("cluster", state(cluster)))
    return report
