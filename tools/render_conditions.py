"""Writes docs/conditions.md: every condition and reason of an InferenceModel, with what to do.

`--check` writes nothing and fails when the page is stale.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import pages

from yaie_operator.reconcile.reasons import GUIDE, TYPES

PAGE = Path(__file__).parents[1] / "docs" / "conditions.md"
HEAD = """\
# Conditions

Every condition in the status of an `InferenceModel`, and every reason that one can have: for
people who wonder why a model is not ready. `kubectl describe ym NAME` and `yaie ps -o yaml` show
them, with a message that names the pod, the field or the quota, and ends with what to do.
`tools/render_conditions.py` writes this page from `yaie_operator.reconcile.reasons`; do not edit
it.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_types(), "", *_reasons()]) + "\n"


def _types() -> Iterator[str]:
    yield from ("## Conditions\n", "| condition | true when |", "|---|---|")
    for kind, meaning in TYPES.items():
        yield f"| `{kind}` | {meaning} |"


def _reasons() -> Iterator[str]:
    yield from ("## Reasons\n", "| reason | what it means | what to do |", "|---|---|---|")
    for reason, guide in GUIDE.items():
        yield f"| `{reason}` | {guide.meaning} | {guide.remedy} |"


if __name__ == "__main__":
    sys.exit(pages.write(PAGE, page, __doc__))
