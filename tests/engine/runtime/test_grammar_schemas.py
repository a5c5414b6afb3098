"""What the grammars of schemas allow is what a validator allows."""

import pytest

from engine import schema_judge
from engine.grammars import DEMO
from engine.schema_judge import Case, Judge, Report, load
from engine.schema_maker import FORMATS, make_case


def judge(seeds: range) -> Report:
    return Judge(*load(DEMO)).run(make_case(seed) for seed in seeds)


def assert_exact(report: Report) -> None:
    assert not report.refused
    assert not report.false_accepts
    assert not report.wrong_walks
    assert not report.false_rejects
    assert not report.limits
    assert report.n_ended > 0.7 * report.n_walks


def test_generated_schemas_allow_exactly_what_validates() -> None:
    report = judge(range(60))
    assert_exact(report)
    assert report.n_valid >= 300
    assert report.n_invalid >= 500


@pytest.mark.slow
def test_five_hundred_schemas_allow_exactly_what_validates() -> None:
    assert_exact(judge(range(60, 560)))


@pytest.mark.parametrize("name", FORMATS)
def test_strings_of_a_format_have_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_judge, "WALKS", 25)
    judged = Judge(*load(DEMO))
    judged.judge(Case(name, {"type": "string", "format": name}, valid=FORMATS[name]))
    assert not judged.report.false_rejects
    assert not judged.report.wrong_walks
    assert judged.report.n_ended > 0


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date-time", "2024-12-31T22:59:59Z", "2024-12-31T22:59:60Z"),
        ("time", "22:59:59Z", "22:59:60Z"),
        ("date", "2000-02-29", "1900-02-29"),
        ("date", "2024-02-29", "2023-02-29"),
        ("email", "a@b.c", "a" * 65 + "@b.c"),
    ],
)
def test_formats_demand_more_than_a_shape(name: str, good: str, bad: str) -> None:
    judged = Judge(*load(DEMO))
    for more in ({}, {"pattern": ".$"}):
        schema = {"type": "string", "format": name, **more}
        judged.judge(Case(name, schema, valid=[good], invalid=[bad]))
    assert judged.report.n_invalid == 2
    assert not judged.report.refused
    assert not judged.report.false_accepts
    assert not judged.report.false_rejects


def test_the_judge_sees_a_keyword_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grammar that ignores one keyword must not pass for an exact one."""
    honest = schema_judge.check_schema
    for lost in ("required", "minimum", "enum", "pattern"):

        def forgetful(schema: object, *, param: str, lost: str = lost) -> object:
            return without(honest(schema, param=param), lost)

        monkeypatch.setattr(schema_judge, "check_schema", forgetful)
        report = judge(range(16))
        assert report.false_accepts, lost


def without(schema: object, keyword: str) -> object:
    if isinstance(schema, dict):
        return {key: without(item, keyword) for key, item in schema.items() if key != keyword}
    return [without(item, keyword) for item in schema] if isinstance(schema, list) else schema
