"""How large a request's body may be, and how slowly it may come.

A body has three limits: bytes, seconds in all, and a least rate, without which a client could hold
a connection for all those seconds with a byte now and then. The rate counts after a grace period,
so that a short pause of a good client is no offence.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from yaie_api.errors import BodyTimeoutError, PayloadTooLargeError

LINGER_S: Final = 3.0
"""After an answer that came before the whole body, the rest is read and dropped for so long, and
then the connection is closed. Closing it at once would reset it while the client still sends, and
the client might not read the answer.
"""


@dataclass(frozen=True)
class BodyLimits:
    """Limits of one body: bytes, seconds, and bytes per second after `grace_s`."""

    most_bytes: int
    most_s: float = 30.0
    grace_s: float = 5.0
    least_bytes_per_s: float = 1000.0


@dataclass
class BodyMeter:
    """What has come of one body. `clock`: in seconds."""

    limits: BodyLimits
    clock: Callable[[], float] = time.monotonic
    received: int = 0
    _began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._began_s = self.clock()

    def left_s(self) -> float:
        """Seconds until the body is too slow, if nothing more of it comes; at least 0."""
        limits = self.limits
        allowed_s = limits.grace_s + self.received / limits.least_bytes_per_s
        return max(0.0, self._began_s + min(limits.most_s, allowed_s) - self.clock())

    def declare(self, size: int) -> None:
        """Take note of the size that the client has declared.

        Raises:
            PayloadTooLargeError: it is over the limit.

        """
        if size > self.limits.most_bytes:
            raise PayloadTooLargeError(
                f"The request body is larger than {self.limits.most_bytes} bytes."
            )

    def add(self, size: int) -> None:
        """Count a part of the body that has come.

        Raises:
            PayloadTooLargeError: the body is over the limit now, whether or not it ends here.

        """
        self.received += size
        self.declare(self.received)

    def too_slow(self) -> BodyTimeoutError:
        """Make the error for a body that did not come within `left_s`."""
        limits = self.limits
        return BodyTimeoutError(
            f"The request body came too slowly: it must arrive within {limits.most_s:g} s, and "
            f"after {limits.grace_s:g} s at {limits.least_bytes_per_s:g} bytes a second or faster."
        )
