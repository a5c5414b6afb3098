"""A wrong file is refused by the API server, with a message that says what to write instead."""

import json
from typing import Any

import pytest

from cluster.control_plane import KubectlError
from e2e.support import Cluster

pytestmark = pytest.mark.e2e


def model(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "yaie.dev/v1alpha1",
        "kind": "InferenceModel",
        "metadata": {"name": "wrong", "namespace": "default"},
        "spec": {"model": {"source": "builtin://yaie-demo"}, **spec},
    }


@pytest.mark.parametrize(
    ("spec", "advice"),
    [
        ({"model": {"source": "file:///models/mine"}}, "write pvc://CLAIM/PATH"),
        ({"model": {"source": "Qwen/Qwen3-0.6B"}}, "write hf://ORG/NAME"),
        ({"model": {"source": "hf://Qwen"}}, "for example hf://Qwen/Qwen3-0.6B"),
        ({"replicas": -1}, "spec.replicas"),
        ({"replica": 2}, 'unknown field "spec.replica"'),
    ],
)
def test_a_wrong_spec_is_refused_with_advice(
    cluster: Cluster, spec: dict[str, Any], advice: str
) -> None:
    with pytest.raises(KubectlError) as refused:
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(model(**spec)))
    assert advice in str(refused.value)


def test_nothing_of_a_refused_model_exists(cluster: Cluster) -> None:
    assert cluster.kubectl.get("ym", "-n", "default")["items"] == []
