"""`make compat`: runs real clients against yaie, directly and through the router, and writes one
table. The exit status is 1 when a check failed that is not excused by name.

    python tests/compat/run.py [--suite NAME …] [--target serve|router] [--output docs/compat.md]
"""

import argparse
import signal
import sys
import time
from itertools import product
from pathlib import Path
from subprocess import CalledProcessError, TimeoutExpired

from environments import MissingToolError
from report import Result, table
from suites import MODEL, SUITES, Check, Suite
from targets import TARGETS


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended, then
    arguments = _parser().parse_args()
    wanted = [suite for suite in SUITES if _chosen(suite, arguments.suite)]
    results: list[Result] = []
    for target, long_context in product(arguments.target or TARGETS, (False, True)):
        suites = [s for s in wanted if target in s.targets and s.long_context == long_context]
        if not suites:
            continue
        with TARGETS[target](MODEL, long_context=long_context) as url:
            for suite in suites:
                results.append(_run(suite, target, url))
                _tell(results[-1])
    if arguments.output:
        arguments.output.write_text(table(results), encoding="utf-8")
    return int(any(result.unexcused for result in results))


def _run(suite: Suite, target: str, url: str) -> Result:
    started = time.monotonic()
    try:
        checks = suite.run(url)
    except (MissingToolError, TimeoutExpired, CalledProcessError) as error:
        checks = [Check("starts", "failed", str(error))]
    return Result(suite, target, tuple(checks), time.monotonic() - started)


def _tell(result: Result) -> None:
    print(
        f"{result.target:7} {result.suite.name:26} {result.count('passed'):3} passed "
        f"{len(result.unexcused):3} failed {len(result.excused):3} excused "
        f"{result.count('skipped'):3} skipped {result.seconds:6.1f} s",
        flush=True,
    )
    for check in result.unexcused:
        print(f"    FAILED {check.name}\n        {check.detail[-1500:]}", flush=True)


def _chosen(suite: Suite, names: list[str] | None) -> bool:
    return not names or any(name.lower() in suite.name.lower() for name in names)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--suite", nargs="+", metavar="NAME", help="only suites with this in a name"
    )
    parser.add_argument("--target", nargs="+", choices=tuple(TARGETS), help="default: both")
    parser.add_argument("--output", type=Path, help="write the table there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
