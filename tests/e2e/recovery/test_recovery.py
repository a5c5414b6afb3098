"""An engine that is killed is replaced, and the model's status says so while it lasts."""

import openai
import pytest

from e2e.support import Demo, ask, until

pytestmark = pytest.mark.e2e


def test_a_killed_engine_is_replaced_and_ready_goes_false_and_true(demo: Demo) -> None:
    (killed,) = demo.pods()
    before = demo.condition("Ready")
    kill = ("delete", "pod", killed, "--force", "--grace-period=0", "-n", demo.namespace)
    demo.cluster.kubectl(*kill)
    until(lambda: demo.condition("Ready")["status"] == "False", "Ready=False", timeout_s=30)
    assert demo.condition("Ready")["message"]
    with demo.client() as client, pytest.raises(openai.InternalServerError) as refused:
        ask(client, "Is anybody there?")
    assert refused.value.status_code == 503
    assert int(refused.value.response.headers["retry-after"]) >= 1

    demo.wait_ready()
    assert demo.condition("Ready")["lastTransitionTime"] > before["lastTransitionTime"]
    assert killed not in demo.pods()
    with demo.client() as client:
        until(lambda: _answers(client), "an answer of the new engine", timeout_s=20)


def _answers(client: openai.OpenAI) -> bool:
    """The router learns of a new engine by a watch, a moment after the status says Ready."""
    try:
        return bool(ask(client, "Are you there?").text)
    except openai.InternalServerError:
        return False
