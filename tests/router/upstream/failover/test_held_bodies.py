"""Bodies are kept within a bound, and long ones compressed after a while."""

import asyncio
import zlib

from yaie_router.upstream.failover import held_bodies
from yaie_router.upstream.failover.held_bodies import HeldBodies

LONG = b'{"role": "user"} ' * 4000


async def test_there_is_room_again_when_a_body_is_released() -> None:
    bodies = HeldBodies(100)
    first = bodies.hold(b"x" * 60)
    assert first is not None
    assert bodies.hold(b"y" * 60) is None
    first.release()
    first.release()
    assert bodies.size_bytes == 0
    assert bodies.hold(b"y" * 60) is not None


async def test_a_long_body_is_compressed_and_comes_back_as_it_was() -> None:
    bodies = HeldBodies(1 << 20)
    held = bodies.hold(LONG)
    assert held is not None
    bodies.compress(held)
    async with asyncio.timeout(20):
        while held.size == len(LONG):  # noqa: ASYNC110 - a thread does it
            await asyncio.sleep(0.01)
    assert bodies.size_bytes == held.size < len(LONG) / 10
    assert held.data == LONG
    held.release()
    assert bodies.size_bytes == 0
    bodies.close()


async def test_when_room_gets_short_bodies_are_compressed_at_once() -> None:
    bodies = HeldBodies(2 * len(LONG))
    waits, hurries = bodies.hold(LONG), bodies.hold(LONG)
    assert waits is not None
    assert hurries is not None
    async with asyncio.timeout(20):
        while hurries.size == len(LONG):  # noqa: ASYNC110 - a thread does it
            await asyncio.sleep(0.01)
    bodies.close()


async def test_a_body_that_was_released_meanwhile_stays_released() -> None:
    bodies = HeldBodies(1 << 20)
    held = bodies.hold(LONG)
    assert held is not None
    held.release()
    held.replace(LONG, zlib.compress(LONG))
    assert (held.size, bodies.size_bytes) == (0, 0)


async def test_what_does_not_shrink_is_kept_as_it_is() -> None:
    bodies = HeldBodies(1 << 20)
    held = bodies.hold(b"abc")
    assert held is not None
    held.replace(b"abc", b"longer")
    assert held.data == b"abc"


async def test_a_short_body_costs_no_timer() -> None:
    bodies = HeldBodies(1 << 20)
    held = bodies.hold(b"x" * (held_bodies.COMPRESSED_FROM_BYTES - 1))
    assert held is not None
    assert held._timer is None
