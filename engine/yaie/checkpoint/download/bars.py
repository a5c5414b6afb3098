"""The progress bars of the hub's library, which draw nothing here and count for a meter."""

from typing import Any

from huggingface_hub.utils.tqdm import tqdm

from yaie.checkpoint.download.progress import Meter


class CountingBar(tqdm):
    """The library's progress bar, which draws nothing and counts for a meter."""

    meter: Meter

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **(kwargs | {"disable": True}))  # type: ignore[no-untyped-call]  # the library's own class
        self._counts = _counted(kwargs)

    def update(self, n: float | None = 1) -> None:
        """Count bytes; the library calls it from its threads."""
        amount = int(n or 0)
        if "stored" in self._counts:
            self.meter.stored(amount)
        if "received" in self._counts:
            self.meter.received(amount)


def bar_of(meter: Meter) -> type[CountingBar]:
    """The class of progress bars that count for a meter."""
    return type("MeterBar", (CountingBar,), {"meter": meter})


def _counted(settings: dict[str, Any]) -> frozenset[str]:
    """What a bar of the library counts: files, the bytes of one file as they come, or of a snapshot
    those on the disk or those of the network.
    """
    name = str(settings.get("name"))
    if settings.get("unit") != "B":
        return frozenset()
    if name.endswith(".http_get"):
        return frozenset({"stored", "received"})
    return frozenset({"received"} if name.endswith(".transfer") else {"stored"})
