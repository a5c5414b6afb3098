"""Names, help texts and labels of every metric that yaie exports.

The process that measures owns the value; this module owns the name, so that dashboards, alerts and
the autoscaler can be checked against it. Base units, `_total` on counters, no colon in names.
"""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True)
class Metric:
    """One metric family. `buckets` are upper bounds in the metric's base unit (histograms only)."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


LATENCY_BUCKETS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
SHORT_BUCKETS_S: Final = (
    0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1,
)  # fmt: skip
