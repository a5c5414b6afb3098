import asyncio
import threading
from itertools import pairwise

from yaie_operator.cluster import WatchEvent
from yaie_operator.watch.kube import BATCH, ChangeQueue

MANY = 20_000


def change(number: int) -> WatchEvent:
    return WatchEvent("MODIFIED", {"number": number})


async def test_changes_that_a_thread_pushes_all_come_in_their_order() -> None:
    """Also those pushed in the moment in which the reader finds nothing more, and waits."""
    feed = ChangeQueue()
    thread = threading.Thread(target=lambda: [feed.push(change(n)) for n in range(MANY)])
    thread.start()
    numbers = []
    async with asyncio.timeout(20.0):
        async for one in feed.changes():
            numbers.append(one.object["number"])
            if len(numbers) == MANY:
                break
    thread.join()
    assert numbers == [*range(MANY)]


async def test_a_lone_change_wakes_the_reader_each_time() -> None:
    feed = ChangeQueue()
    changes = aiter(feed.changes())
    for number in range(100):
        reading = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        feed.push(change(number))
        assert (await asyncio.wait_for(reading, 5.0)).object["number"] == number


async def test_a_long_list_leaves_turns_to_the_rest_of_the_event_loop() -> None:
    feed = ChangeQueue()
    for number in range(10 * BATCH):
        feed.push(change(number))
    read, seen = 0, []

    async def look() -> None:
        while True:
            seen.append(read)
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    async for _ in feed.changes():
        read += 1
        if read == 10 * BATCH:
            break
    looking.cancel()
    assert max(after - before for before, after in pairwise(seen)) <= BATCH


def test_a_change_after_the_end_of_the_event_loop_is_dropped() -> None:
    async def made() -> ChangeQueue:
        return ChangeQueue()

    feed = asyncio.run(made())
    feed.push(change(1))
