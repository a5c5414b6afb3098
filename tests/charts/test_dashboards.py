"""The dashboards are what the code says, Grafana's schema takes them, and their metrics exist."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from charts import promql
from charts.promql import BOARDS, ROOT, Expression
from yaie_api import metrics
from yaie_api.metrics import Metric

SCHEMAS = Path(__file__).parent / "grafana"
DECLARED = {
    name: one
    for one in metrics.every()
    for name in (
        [f"{one.name}_{part}" for part in ("bucket", "sum", "count")]
        if one.kind == "histogram"
        else [one.name]
    )
}
"""The metric of each series that a scrape finds."""
FROM_SCRAPING = {"namespace", "pod", "model"}
EXPRESSIONS = [*promql.of_dashboards(), *promql.of_rules()]


def schema(name: str, definition: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.jsonschema.json").read_text())
    if definition is not None:
        found["$ref"] = f"#/definitions/{definition}"
    return found


@pytest.mark.parametrize("path", BOARDS, ids=lambda one: one.stem)
def test_grafana_takes_the_dashboard(path: Path) -> None:
    board = promql.board(path)
    jsonschema_rs.validate(schema("dashboard"), board)
    for panel in board["panels"]:
        if panel["type"] == "row":
            continue
        jsonschema_rs.validate(schema(panel["type"], "Options"), panel["options"])
        for target in panel["targets"]:
            jsonschema_rs.validate(schema("prometheus"), target)
        if panel["type"] == "timeseries":
            custom = panel["fieldConfig"]["defaults"]["custom"]
            jsonschema_rs.validate(schema("timeseries", "FieldConfig"), custom)


def test_a_wrong_dashboard_would_be_refused() -> None:
    board = promql.board(BOARDS[0])
    board["panels"][1]["gridPos"]["w"] = 25
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schema("dashboard"), board)


def test_the_files_are_what_the_code_says() -> None:
    command = [sys.executable, str(ROOT / "tools" / "render_dashboards.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"run `make manifests`\n{done.stdout}{done.stderr}"


def test_there_are_four_dashboards_with_names_and_addresses_of_their_own() -> None:
    boards = [promql.board(path) for path in BOARDS]
    assert [board["uid"] for board in boards] == [path.stem for path in BOARDS]
    assert len({board["title"] for board in boards}) == len(boards) == 4


@pytest.mark.parametrize("path", BOARDS, ids=lambda one: one.stem)
def test_panels_do_not_overlap_and_have_numbers_of_their_own(path: Path) -> None:
    panels = promql.board(path)["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda one: one.place)
def test_metrics_and_labels_of_an_expression_exist(expression: Expression) -> None:
    for name, matched in expression.series:
        if name in promql.recorded():
            continue
        assert name in DECLARED, f"no process exports {name}"
        assert matched <= labels_of(DECLARED[name]) | {"le"}, name
        assert expression.grouping <= labels_of(DECLARED[name]) | {"le"}, name


def labels_of(metric: Metric) -> set[str]:
    """The labels that a series has: its own, and those that the PodMonitors add."""
    added = {"engine": FROM_SCRAPING, "router": FROM_SCRAPING - {"model"}, "operator": {"pod"}}
    return {*metric.labels, *added[metric.exporter]}


@pytest.mark.parametrize("path", BOARDS, ids=lambda one: one.stem)
def test_variables_are_declared_and_find_values(path: Path) -> None:
    board = promql.board(path)
    declared = {one["name"]: one for one in board["templating"]["list"]}
    text = json.dumps([panel.get("targets") for panel in board["panels"]])
    used = set(re.findall(r"\$(\w+)", text)) - {"__rate_interval"}
    assert used == set(declared)
    for one in declared.values():
        if one["type"] == "query":
            found = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", one["query"])
            assert found is not None
            assert found[2] in labels_of(DECLARED[found[1]])


@pytest.mark.parametrize(
    ("query", "metric"),
    [
        ("rate", metrics.ENGINE_RUNNING),
        ("count_rate", metrics.ENGINE_STEPS),
        ("total", metrics.ENGINE_TTFT),
    ],
)
def test_a_query_that_would_find_nothing_is_an_error(
    query: str, metric: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from dashboards import queries

    with pytest.raises(queries.QueryError):
        getattr(queries, query)(metric)
