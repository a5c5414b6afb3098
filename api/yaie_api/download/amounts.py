"""How sizes, durations and the state of a download are written for people."""


def in_bytes(count: float) -> str:
    """A size as the hub writes it, in powers of 1000: `512 B`, `2.5 MB`, `1.20 GB`."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.{2 if size >= 1e9 else 1}f} {unit}"
    return f"{count:.0f} B"


def duration(seconds: float) -> str:
    """`40 s`, `12 min` or `3 h 5 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def how_far(done: int, total: int, bytes_per_s: float, left_s: float | None) -> str:
    """`1.20 GB of 3.40 GB (35 %), 56.1 MB/s, 40 s left`. `total`: 0 if it is not known."""
    words = in_bytes(done)
    if total:
        words += f" of {in_bytes(total)} ({100 * done // total} %)"
    words += f", {in_bytes(bytes_per_s)}/s"
    return words if left_s is None else f"{words}, {duration(left_s)} left"
