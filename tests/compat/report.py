"""The scoreboard: results of all suites as one Markdown page."""

from dataclasses import dataclass

from suites import Check, Suite

HEAD = """# Compatibility

What real clients make of yaie, written by `make compat`: each client in an environment of its own,
against `yaie serve` and through the router of `yaie up`, with the built-in model.

| client | target | passed | excused | skipped by the client | failed |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Result:
    """What one suite found at one target. `seconds`: how long it took, installation included."""

    suite: Suite
    target: str
    checks: tuple[Check, ...]
    seconds: float

    def count(self, outcome: str) -> int:
        return sum(check.outcome == outcome for check in self.checks)

    @property
    def excused(self) -> tuple[Check, ...]:
        return tuple(c for c in self._failed if c.name in self.suite.excused)

    @property
    def unexcused(self) -> tuple[Check, ...]:
        return tuple(c for c in self._failed if c.name not in self.suite.excused)

    @property
    def _failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.outcome == "failed")


def table(results: list[Result]) -> str:
    """The page. Excused checks and what clients skip are named below the table."""
    rows = [
        f"| {r.suite.name} | {r.target} | {r.count('passed')} | {len(r.excused)} | "
        f"{r.count('skipped')} | {len(r.unexcused)} |"
        for r in results
    ]
    return HEAD + "\n".join(rows) + "\n" + _reasons(results) + _skipped(results)


def _reasons(results: list[Result]) -> str:
    used = {(r.suite.name, c.name): r.suite.excused[c.name] for r in results for c in r.excused}
    lines = [f"- {suite}, {check}: {reason}" for (suite, check), reason in sorted(used.items())]
    return "\n## Excused\n\n" + "\n".join(lines) + "\n" if lines else ""


def _skipped(results: list[Result]) -> str:
    found = sorted(
        {(r.suite.name, c.name) for r in results for c in r.checks if c.outcome == "skipped"}
    )
    lines = [f"- {suite}: {check}" for suite, check in found]
    return "\n## Skipped by the clients themselves\n\n" + "\n".join(lines) + "\n" if lines else ""
