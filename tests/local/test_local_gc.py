from fakes.local_objects import obj, owner
from yaie_local.controllers.gc import orphans


def with_uid(name: str, *owners: object, **meta: object) -> dict[str, object]:
    references = [owner(o) for o in owners]
    return obj(name=name, metadata={"uid": f"uid-{name}", "ownerReferences": references, **meta})


def test_children_of_nobody_and_of_the_living_stay() -> None:
    parent = with_uid("parent")
    assert orphans([parent, with_uid("child", parent)]) == []


def test_an_object_whose_owners_are_all_gone_goes() -> None:
    gone = with_uid("gone")
    child = with_uid("child", gone)
    assert orphans([child]) == [child]


def test_one_living_owner_of_several_is_enough() -> None:
    living, gone = with_uid("living"), with_uid("gone")
    assert orphans([living, with_uid("child", living, gone)]) == []


def test_a_namesake_of_the_owner_is_not_the_owner() -> None:
    gone = with_uid("parent")
    successor = with_uid("parent", uid="another")
    child = with_uid("child", gone)
    assert orphans([successor, child]) == [child]


def test_what_is_ending_already_is_left_alone() -> None:
    gone = with_uid("gone")
    assert orphans([with_uid("child", gone, deletionTimestamp="2026-01-01T00:00:00Z")]) == []
