"""Deleting a model leaves nothing of it; deleting the last one leaves no router."""

from typing import Any

import pytest

from e2e.support import Cluster, Demo, until
from yaie_api import names

pytestmark = pytest.mark.e2e

KINDS = "deployments,replicasets,pods,services,endpointslices,configmaps,secrets,rolebindings"
ALL_KINDS = f"{KINDS},serviceaccounts"


def remains(cluster: Cluster, namespace: str, selector: str) -> list[str]:
    found: dict[str, Any] = cluster.kubectl.get(ALL_KINDS, "-n", namespace, "-l", selector)
    return [f"{each['kind']}/{each['metadata']['name']}" for each in found["items"]]


def test_models_leave_no_children_and_the_last_one_takes_the_router(cluster: Cluster) -> None:
    ours = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
    with cluster.namespace("deletion") as namespace:
        first = Demo(cluster, namespace)
        first.deploy()
        second = first.get()
        second["metadata"] = {"name": "second", "namespace": namespace}
        second["spec"]["suspend"] = True
        cluster.kubectl.apply(
            {key: second[key] for key in ("apiVersion", "kind", "metadata", "spec")}
        )
        until(lambda: remains(cluster, namespace, f"{names.LABEL_MODEL}=second"), "its children")

        cluster.kubectl("delete", "ym", "demo", "-n", namespace)
        mine = f"{names.LABEL_MODEL}=demo"
        until(lambda: not remains(cluster, namespace, mine), "demo's children to go")
        assert f"Deployment/{names.ROUTER}" in remains(cluster, namespace, ours)

        cluster.kubectl("delete", "ym", "second", "-n", namespace)
        until(lambda: not remains(cluster, namespace, ours), "the router to go")
        left = cluster.kubectl.get(ALL_KINDS, "-n", namespace)["items"]
        names_left = {each["metadata"]["name"] for each in left}
        assert names_left == {"default", "kube-root-ca.crt"}  # every namespace has these
