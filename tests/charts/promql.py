"""Reads the chart's dashboards and rules: their PromQL expressions, and the names within."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "yaie"
RULES = CHART / "files" / "rules.yaml"
BOARDS = sorted((CHART / "files" / "dashboards").glob("*.json"))

_SERIES = re.compile(r"\b((?:yaie_|yaie:)[a-z0-9_:]+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring) \(([^)]*)\)")


class Expression(NamedTuple):
    """A PromQL expression, and where it stands."""

    place: str
    expr: str

    @property
    def series(self) -> Iterator[tuple[str, set[str]]]:
        """Each series with the labels that are matched."""
        for name, matchers in _SERIES.findall(self.expr):
            yield name, set(_MATCHER.findall(matchers))

    @property
    def grouping(self) -> set[str]:
        """Labels by which something is summed or joined."""
        found = _GROUPING.findall(self.expr)
        return {label.strip() for labels in found for label in labels.split(",") if label.strip()}


def board(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def of_dashboards() -> Iterator[Expression]:
    """Every query of every panel, and of every variable."""
    for path in BOARDS:
        found = board(path)
        for panel in found["panels"]:
            for target in panel.get("targets", ()):
                yield Expression(f"{path.stem}: {panel['title']}", target["expr"])


def groups() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return found


def of_rules() -> Iterator[Expression]:
    """Every rule, under its name."""
    for group in groups():
        for rule in group["rules"]:
            yield Expression(rule.get("alert") or rule["record"], rule["expr"])


def alerts() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each alert with the name of its group, less the prefix."""
    for group in groups():
        for rule in group["rules"]:
            if "alert" in rule:
                yield group["name"].removeprefix("yaie-"), rule


def recorded() -> set[str]:
    return {rule["record"] for group in groups() for rule in group["rules"] if "record" in rule}
