"""The rules are valid, each alert fires in a test, and each has a runbook."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts import promql
from docs.pages import anchors

TESTS = Path(__file__).parent / "rules_test.yaml"
ALERTS = list(promql.alerts())
NAMES = [rule["alert"] for _, rule in ALERTS]


def promtool(*arguments: str | Path) -> str:
    """What promtool says. It comes with Debian's prometheus, which `make prometheus` installs."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed: apt-get install prometheus, or make prometheus")
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_takes_the_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", promql.RULES)


def test_every_alert_is_silent_at_first_and_fires_later() -> None:
    assert "SUCCESS" in promtool("test", "rules", TESTS)


def test_no_alert_is_without_a_test() -> None:
    fires: dict[str, list[bool]] = {}
    for case in yaml.safe_load(TESTS.read_text())["tests"]:
        for one in case.get("alert_rule_test", ()):
            fires.setdefault(one["alertname"], []).append(bool(one["exp_alerts"]))
    assert fires == {name: [False, True] for name in NAMES}


def test_no_name_is_given_twice() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(("group", "rule"), ALERTS, ids=NAMES)
def test_an_alert_says_what_is_wrong_and_what_to_do(group: str, rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"].endswith(".")
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert page == f"docs/runbooks/{group}.md"
    assert anchor == rule["alert"].lower()
    assert anchor in anchors(promql.ROOT / page)


def test_no_runbook_is_of_an_alert_that_does_not_exist() -> None:
    told = {
        heading.removeprefix("## ")
        for page in (promql.ROOT / "docs" / "runbooks").glob("*.md")
        for heading in page.read_text().splitlines()
        if heading.startswith("## ")
    }
    assert told == set(NAMES)
