"""Named checks that run in a client's own environment and report as JSON lines. Stdlib only.

{"check": "stream", "outcome": "passed"} or {"check": …, "outcome": "failed", "detail": "…"}
"""

import asyncio
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

URL = os.environ.get("YAIE_COMPAT_URL", "http://127.0.0.1:8000")
MODEL = os.environ.get("YAIE_COMPAT_MODEL", "demo")
_checks: list[Callable[[], Any]] = []


def check(function: Callable[[], Any]) -> Callable[[], Any]:
    """Register a check. It passes when it returns, and fails with what it raises."""
    _checks.append(function)
    return function


def main() -> None:
    """Run every check, each whatever the others did."""
    failed = 0
    for function in _checks:
        name = function.__name__.replace("_", " ")
        try:
            result = function()
            if inspect.isawaitable(result):
                asyncio.run(asyncio.wait_for(result, 120))
        except Exception:  # a client may raise anything: that is what is reported
            failed += 1
            report(name, "failed", traceback.format_exc(limit=-3))
        else:
            report(name, "passed")
    sys.exit(bool(failed))


def report(name: str, outcome: str, detail: str = "") -> None:
    print(json.dumps({"check": name, "outcome": outcome, "detail": detail[-2000:]}), flush=True)
