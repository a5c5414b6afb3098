"""The modules of `bench/`, which are programs beside each other and no package."""

import sys
from pathlib import Path

_FOLDER = str(Path(__file__).parents[2] / "bench")

sys.path.insert(0, _FOLDER)
try:
    import arrivals
    import autoscale
    import clients
    import online
    import peers
    import summary
    import tables
    import workloads
    from routing import cache, engine, rivals, traces, world
finally:
    sys.path.remove(_FOLDER)  # its modules have common names, and hide nothing of the tests

__all__ = [
    "arrivals",
    "autoscale",
    "cache",
    "clients",
    "engine",
    "online",
    "peers",
    "rivals",
    "summary",
    "tables",
    "traces",
    "workloads",
    "world",
]
