"""Builds the JSON of a Grafana dashboard: rows of panels, each with queries of one data source."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from yaie_api.metrics import Metric

Json = dict[str, Any]
Unit = Literal["s", "reqps", "ops", "short", "percentunit", "none"]
DATASOURCE: Final = {"type": "prometheus", "uid": "$datasource"}
WIDTH: Final = 24
HEIGHT: Final = 8
STAT_HEIGHT: Final = 4


@dataclass(frozen=True)
class Query:
    """A PromQL expression, and the name of each of its series: `{{label}}` is a label's value."""

    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """One panel. `kind` stat: the last value, large. `most`: the end of the axis, if it has one."""

    title: str
    about: str
    unit: Unit
    queries: Sequence[Query]
    kind: Literal["timeseries", "stat"] = "timeseries"
    most: float | None = None
    stacked: bool = False


@dataclass(frozen=True)
class Row:
    """Panels below a heading, `columns` beside each other."""

    title: str
    panels: Sequence[Panel]
    columns: int = 3


@dataclass(frozen=True)
class Variable:
    """A choice at the top of the dashboard: the values that a label of a metric has."""

    name: str
    metric: Metric
    within: str = ""


def dashboard(
    uid: str, title: str, about: str, variables: Sequence[Variable], rows: Sequence[Row]
) -> Json:
    """The whole dashboard, in Grafana's classic JSON model."""
    return {
        "uid": uid,
        "title": title,
        "description": about,
        "tags": ["yaie"],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": []},
        "links": [_link()],
        "templating": {"list": [_datasource(), *map(_variable, variables)]},
        "panels": list(_panels(rows)),
    }


def _link() -> Json:
    """A menu with yaie's other dashboards."""
    return {
        "type": "dashboards",
        "title": "yaie",
        "tags": ["yaie"],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "",
        "url": "",
    }


def _datasource() -> Json:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
    }


def _variable(one: Variable) -> Json:
    query = f"label_values({one.metric.name}{one.within}, {one.name})"
    return {
        "type": "query",
        "name": one.name,
        "label": one.name.capitalize(),
        "datasource": DATASOURCE,
        "query": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(rows: Sequence[Row]) -> Iterator[Json]:
    y = number = 0
    for row in rows:
        number += 1
        yield {
            "type": "row",
            "id": number,
            "title": row.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
            "panels": [],
        }
        y += 1
        width = WIDTH // row.columns
        height = STAT_HEIGHT if row.panels[0].kind == "stat" else HEIGHT
        for place, panel in enumerate(row.panels):
            number += 1
            at = {"x": place % row.columns * width, "y": y, "w": width, "h": height}
            yield _panel(panel, number, at)
            if (place + 1) % row.columns == 0 or place + 1 == len(row.panels):
                y += height


def _panel(panel: Panel, number: int, at: Json) -> Json:
    defaults: Json = {"unit": panel.unit, "min": 0}
    if panel.most is not None:
        defaults["max"] = panel.most
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 5,
            "showPoints": "never",
            "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
        }
    return {
        "type": panel.kind,
        "id": number,
        "title": panel.title,
        "description": panel.about,
        "datasource": DATASOURCE,
        "gridPos": at,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _TIMESERIES if panel.kind == "timeseries" else _STAT,
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": DATASOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "range": panel.kind == "timeseries",
                "instant": panel.kind == "stat",
            }
            for place, query in enumerate(panel.queries)
        ],
    }


_TIMESERIES: Final = {
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
    "tooltip": {"mode": "multi", "sort": "desc"},
}
_STAT: Final = {
    "graphMode": "none",
    "colorMode": "value",
    "justifyMode": "auto",
    "textMode": "auto",
    "wideLayout": True,
    "showPercentChange": False,
    "percentChangeColorMode": "standard",
    "orientation": "auto",
    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
}
