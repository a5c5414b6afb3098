"""Whatever an API server sends, the router goes on with what it knew and with other objects."""

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from router.conftest import Stack
from router.fakes import FakeEngine, endpoint_slice, inference_model
from yaie_router.discovery.endpoints import Directory
from yaie_router.downstream.model_list import entry

Path = tuple[Any, ...]
WRONG: list[Any] = [
    *(None, 0, -1, 5, 1e308, math.nan, "", "x", "9" * 30, True),
    *([], [None], [[]], [1], [{}], {}, {"a": None}, {"": []}),
]
ENGINE = FakeEngine("pod-a")
ENGINE.port = 8000
MODEL = inference_model(
    replicas=1,
    suspend=False,
    engine={"maxNumSeqs": 4},
    autoscaling={"min": 0},
    routing={"policy": "PrefixAffinity", "loadFactor": 1.25, "timeoutSeconds": 6},
    model={"source": "builtin://yaie-demo", "servedName": "served", "aliases": ["x", "y"]},
) | {
    "status": {
        "model": {"contextLength": 5},
        "conditions": [{"type": "EnginesReady", "status": "False", "message": "It starts."}],
    }
}
SLICE = endpoint_slice("demo", ENGINE)


def places(part: Any, path: Path = ()) -> Iterator[Path]:
    """Each place in an object."""
    yield path
    inner = part.items() if isinstance(part, dict) else []
    for key, value in [*inner, *(enumerate(part) if isinstance(part, list) else [])]:
        yield from places(value, (*path, key))


def with_value(whole: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    whole = copy.deepcopy(whole)
    part = whole
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return whole


def known() -> Directory:
    directory = Directory()
    directory.models.replace([MODEL, inference_model("other")])
    directory.slices.replace([SLICE])
    return directory


def check(directory: Directory) -> None:
    """What the router does with its models works with all of them."""
    for name in directory.served_names():
        model = directory.find(name)
        assert model is not None
        json.dumps(entry(name, model)).encode()
    for model in directory.all():
        hash(model)
        assert model.max_num_seqs >= 1
        assert model.timeout_s is None or model.timeout_s > 0
        assert 1 <= model.load_factor <= 1000
        assert all(0 < endpoint.port < 65536 for endpoint in model.endpoints)
    assert directory.find("other") is not None


@pytest.mark.parametrize(("table", "whole"), [("models", MODEL), ("slices", SLICE)])
def test_no_wrong_value_anywhere_harms_other_objects(table: str, whole: dict[str, Any]) -> None:
    for path in places(whole):
        for value in WRONG:
            broken = with_value(whole, path, value)
            directory = known()
            rows = getattr(directory, table)
            rows.put(broken)
            check(directory)
            rows.replace([broken, inference_model("other")] if table == "models" else [broken])
            check(directory)
            rows.drop(broken)
            check(directory)


@pytest.mark.parametrize(
    "path",
    [
        ("spec", "model", "servedName"),
        ("spec", "model", "aliases", 0),
        ("spec", "routing", "policy"),
        ("spec", "engine", "maxNumSeqs"),
        ("status", "model", "contextLength"),
    ],
)
def test_a_field_of_a_wrong_type_leaves_the_last_good_state(path: Path) -> None:
    directory = known()
    before = directory.find("served")
    directory.models.put(with_value(MODEL, path, [None]))
    assert directory.find("served") == before


def test_unknown_fields_are_passed_over() -> None:
    directory = known()
    before = directory.find("served")
    more = {"unknown": [None], "kind": 7}
    directory.models.put(MODEL | more | {"spec": MODEL["spec"] | more})
    directory.slices.put(SLICE | more)
    assert directory.find("served") == before


@pytest.mark.parametrize(
    "sent",
    [
        b"null\n",
        b"[]\n",
        b'{"type": "MODIFIED", "object": null}\n',
        b'{"type": "MODIFIED", "object": {"metadata": null}}\n',
        b'{"type": "MODIFIED", "object": {"metadata": {"resourceVersion": 7}}}\n',
        b'{"type": ["MODIFIED"], "object": {"metadata": {}}}\n',
        b'{"type": "ERROR", "object": {"code": [], "message": {}}}\n',
        b'{"type": "ADDED"\n',
        b"\xff\xfe\n",
    ],
)
async def test_a_watch_that_sends_nonsense_is_opened_again(sent: bytes, stack: Stack) -> None:
    await stack.serve("demo", FakeEngine())
    stack.api.nonsense.append(sent)
    await stack.api.put(inference_model("late"))
    await stack.until(lambda: stack.knows("late", "late", 0))
    assert not stack.task.done()
    async with stack.chat() as response:
        assert response.status == 200
    assert not stack.api.nonsense
