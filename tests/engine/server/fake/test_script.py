"""Which requests of a fake engine fail, and what is refused."""

import pytest

from yaie.server.fake.script import KINDS, Fault, Script, faults_of


def test_each_kind_fails_its_share_of_the_requests() -> None:
    script = Script(faults=faults_of(["5xx:0.25", "reset:0.5"]))
    draws = [script.fault_at(draw / 100) for draw in range(100)]
    assert draws == ["5xx"] * 25 + ["reset"] * 50 + [None] * 25


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_without_a_share_is_every_request(kind: str) -> None:
    assert Fault.parse(kind) == Fault(kind, 1.0)
    assert Script(faults=faults_of([f"{kind}:1"])).fault_at(0.999999) == kind


def test_without_faults_every_request_succeeds() -> None:
    assert Script().fault_at(0.0) is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["boom"], "no kind of failure: write one of 5xx, 429"),
        (["5xx:2"], "a number from 0 to 1, as in 5xx:0.1"),
        (["5xx:nan"], "a number from 0 to 1"),
        (["5xx:some"], "a number from 0 to 1"),
        (["5xx:0.6", "429:0.6"], "more than 1 together"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        faults_of(words)
