"""`kubectl scale` works on a model as it does on a Deployment."""

import pytest

from e2e.support import Demo

pytestmark = pytest.mark.e2e


def test_kubectl_scale_adds_and_removes_engines(demo: Demo) -> None:
    demo.scale(2)
    model = demo.get()
    assert model["spec"]["replicas"] == 2
    assert model["status"]["replicas"]["ready"] == 2
    assert len(demo.pods()) == 2
    demo.scale(1)
    assert demo.get()["status"]["ready"] == "1/1"
    assert len(demo.pods()) == 1
