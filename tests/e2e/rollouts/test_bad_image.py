"""A model is updated to an image that no node can get, and back; no stream is lost."""

import json

import pytest

from e2e.support import Demo, until
from fakes.streaming_load import Load

pytestmark = pytest.mark.e2e
MISSING = "localhost/yaie-test/engine:no-such-tag"


def test_an_image_that_does_not_come_blocks_the_rollout_and_the_old_engine_serves(
    demo: Demo,
) -> None:
    old = demo.pods()
    with demo.client() as client, Load(client.base_url.port or 80).running(clients=2) as load:
        load.more(4)
        _set_image(demo, MISSING)
        try:
            until(lambda: _rollout(demo)["blockedBy"].startswith("image pull: "), "the reason")
            assert MISSING in _rollout(demo)["blockedBy"]
            assert demo.condition("Available")["status"] == "True"
            load.more(4)
        finally:
            _set_image(demo, None)
        until(lambda: _rollout(demo)["step"] == "Complete", "the way back")
        until(lambda: len(demo.pods()) == 1, "the new engine's end")
        assert demo.pods() == old, "it was not restarted"
        load.more(4)
    assert load.failures == []
    assert load.engines == set(old)


def _set_image(demo: Demo, image: str | None) -> None:
    """Patch the engine's image; None: that of the installation."""
    patch = json.dumps({"spec": {"engine": {"image": image}}})
    where = ("-n", demo.namespace, "--type=merge", "-p", patch)
    demo.cluster.kubectl("patch", f"ym/{demo.name}", *where)


def _rollout(demo: Demo) -> dict[str, str]:
    rollout: dict[str, str] = demo.get()["status"]["rollout"]
    return rollout
