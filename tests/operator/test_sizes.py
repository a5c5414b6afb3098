from typing import Any

from yaie_api.resource.model import InferenceModelStatus
from yaie_operator.reconcile.sizes import Sizes, with_sizes

SIZES = Sizes(parameters=10, weight_bytes=20, context_tokens=100, kv_tokens=450)
MODEL = {"parameters": 10, "weightBytes": 20, "contextLength": 100}
CAPACITY = {"kvTokens": 450, "maxConcurrency": 4.5}


def status(*, version: str = "a", ready: int = 1, **more: Any) -> dict[str, Any]:
    return {"rollout": {"hash": version}, "replicas": {"ready": ready}, **more}


def test_what_an_engine_says_becomes_model_and_capacity() -> None:
    told = with_sizes(status(), {}, SIZES)
    assert told["model"] == MODEL
    assert told["capacity"] == CAPACITY
    InferenceModelStatus.model_validate(told)


def test_before_any_engine_spoke_nothing_is_said() -> None:
    assert with_sizes(status(), {}, None) == status()
    assert with_sizes(status(), {"status": status()}, None) == status()


def test_a_new_operator_keeps_what_is_said_until_an_engine_has_spoken() -> None:
    stored = status(model=MODEL, capacity=CAPACITY)
    assert with_sizes(status(), {"status": stored}, None) == stored
    assert with_sizes(status(ready=0), {"status": stored}, None)["capacity"] == CAPACITY


def test_sizes_of_another_spec_stay_only_while_its_engines_serve() -> None:
    stored = {"status": status(model=MODEL, capacity=CAPACITY)}
    assert with_sizes(status(version="b"), stored, None)["model"] == MODEL
    gone = status(version="b", ready=0)
    assert with_sizes(gone, stored, None) == gone


def test_another_part_of_the_models_status_stays() -> None:
    told = with_sizes(status(model={"resolvedRevision": "r"}), {}, SIZES)
    assert told["model"] == {"resolvedRevision": "r", **MODEL}


def test_an_engine_without_a_context_has_no_concurrency() -> None:
    assert with_sizes(status(), {}, Sizes(parameters=1))["capacity"]["maxConcurrency"] == 0.0
