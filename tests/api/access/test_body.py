import pytest

from yaie_api.errors import PayloadTooLargeError
from yaie_api.http.access.body import BodyLimits, BodyMeter

LIMITS = BodyLimits(most_bytes=1000, most_s=30.0, grace_s=5.0, least_bytes_per_s=10.0)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("elapsed_s", "received", "left_s"),
    [(0, 0, 5), (4, 0, 1), (6, 0, 0), (6, 20, 1), (6, 100, 9), (6, 1000, 24), (31, 1000, 0)],
)
def test_every_byte_buys_time_up_to_the_limit(
    elapsed_s: float, received: int, left_s: float
) -> None:
    clock = Clock()
    meter = BodyMeter(LIMITS, clock)
    meter.add(received)
    clock.now_s += elapsed_s
    assert meter.left_s() == left_s


def test_a_body_is_too_large_as_soon_as_it_passes_the_limit() -> None:
    meter = BodyMeter(LIMITS)
    meter.add(1000)
    with pytest.raises(PayloadTooLargeError, match="larger than 1000 bytes"):
        meter.add(1)
    with pytest.raises(PayloadTooLargeError):
        BodyMeter(LIMITS).declare(1001)


def test_a_slow_body_is_told_both_limits() -> None:
    error = BodyMeter(LIMITS).too_slow()
    assert (error.status, error.code) == (408, "body_timeout")
    assert "within 30 s" in error.message
    assert "10 bytes a second" in error.message
