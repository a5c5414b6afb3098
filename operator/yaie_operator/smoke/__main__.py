"""`python -m yaie_operator.smoke URL --model NAME`: wait for a model and chat with it.

Exit code 0 after a streamed answer with text; 1 with a sentence that says what was in the way.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from yaie_api import names
from yaie_operator.smoke.chat import NotYetError, ask

RETRY_S = 2.0


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    deadline = time.monotonic() + arguments.timeout_s
    told = ""
    key = os.environ.get(names.ENV_API_KEY, "").strip()
    while True:
        left_s = deadline - time.monotonic()
        try:
            answer = ask(
                arguments.url,
                arguments.model,
                timeout_s=max(left_s, 1.0),
                key=key,
                ca_dir=arguments.ca_dir,
            )
        except NotYetError as error:
            if str(error) != told:
                told = str(error)
                _say(f"waiting: {told}")
        else:
            _say(f"{arguments.model} answered after {answer.seconds:.1f} s: {answer.text!r}")
            return 0
        if left_s <= RETRY_S:
            _say(f"No answer within {arguments.timeout_s:g} s. At last: {told}")
            _say("See `kubectl describe ym`, and the operator's log.")
            return 1
        time.sleep(RETRY_S)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m yaie_operator.smoke", description=__doc__)
    parser.add_argument("url", help="base URL of the API: http://yaie-router.NAMESPACE.svc:8000/v1")
    parser.add_argument("--model", required=True, help="name of the model")
    parser.add_argument("--timeout-s", type=float, default=270.0, help="seconds to wait for it")
    parser.add_argument("--ca-dir", type=Path, help="trust the certificates in its files, too")
    return parser


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
