"""From `kubectl apply` to a streamed answer, with the official client, through the router."""

import openai
import pytest

from e2e.support import Demo

pytestmark = pytest.mark.e2e


def test_a_model_streams_its_answer_through_the_router(demo: Demo) -> None:
    with demo.client() as client:
        stream = client.chat.completions.create(
            model="demo",
            messages=[{"role": "user", "content": "What is a river?"}],
            max_tokens=64,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    pieces = [choice.delta.content for choice in choices if choice.delta.content]
    finish = choices[-1].finish_reason
    usage = chunks[-1].usage
    assert len(pieces) > 5
    assert any(word.isalpha() for word in "".join(pieces).split())
    assert finish in {"stop", "length"}
    assert usage is not None
    assert 5 < usage.completion_tokens <= 64


def test_the_router_lists_the_model_and_knows_no_other(demo: Demo) -> None:
    with demo.client() as client:
        assert [model.id for model in client.models.list()] == ["demo"]
        with pytest.raises(openai.NotFoundError) as refused:
            client.chat.completions.create(
                model="absent", messages=[{"role": "user", "content": "Hello"}]
            )
    assert refused.value.body is not None


def test_the_status_tells_what_a_user_wants_to_know(demo: Demo) -> None:
    model = demo.get()
    status = model["status"]
    assert status["observedGeneration"] == model["metadata"]["generation"]
    assert status["ready"] == "1/1"
    assert status["phase"] == "Ready"
    assert status["endpoint"] == f"http://yaie-router.{demo.namespace}.svc:8000/v1"
    states = {each["type"]: each["status"] for each in status["conditions"]}
    for kind in ("Accepted", "EnginesReady", "RouterReady", "Available", "Ready"):
        assert states[kind] == "True", kind
    columns = demo.cluster.kubectl("get", "ym", "demo", "-n", demo.namespace).split("\n")[0]
    assert columns.split() == ["NAME", "MODEL", "READY", "PHASE", "GPU", "REASON", "AGE"]


def test_other_pods_reach_the_endpoint_of_the_status_by_name(demo: Demo) -> None:
    """The address in the status is resolved and served inside the cluster."""
    code = (
        "import urllib.request;"
        f"print(urllib.request.urlopen('{demo.get()['status']['endpoint']}/models',timeout=20).read())"
    )
    (pod,) = demo.pods()
    run = ("exec", pod, "-n", demo.namespace, "--", "python", "-c", code)
    assert '"demo"' in demo.cluster.kubectl(*run)
