"""Ids of stored responses tell the engine that has them, and nothing else can be read into them."""

import pytest

from yaie_api.response_id import mark_in, mark_of_pod, new_response_id


def test_an_id_names_its_pod_and_differs_each_time() -> None:
    mark = mark_of_pod("demo-7d9f8-abcde")
    ids = {new_response_id(mark) for _ in range(50)}
    assert len(ids) == 50
    assert {mark_in(one) for one in ids} == {mark}
    assert mark != mark_of_pod("demo-7d9f8-abcdf")


def test_a_mark_is_the_same_in_every_process_and_version() -> None:
    assert mark_of_pod("demo-7d9f8-abcde") == "676f0bc4"


def test_an_engine_without_a_pod_makes_ids_without_a_mark() -> None:
    assert mark_of_pod("") == ""
    made = new_response_id("")
    assert len(made) == len("resp_") + 32
    assert mark_in(made) is None


@pytest.mark.parametrize(
    "response_id",
    [
        "",
        "resp_",
        "resp_" + "a" * 39,
        "resp_" + "a" * 41,
        "resp_" + "A" * 40,
        "resp_" + "g" + "a" * 39,
        "msg__" + "a" * 40,
        "resp_" + "a" * 40 + "\n",
        " resp_" + "a" * 40,
        "resp_" + "٣" * 40,
    ],
)
def test_what_is_not_such_an_id_has_no_mark(response_id: str) -> None:
    assert mark_in(response_id) is None
