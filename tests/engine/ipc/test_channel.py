"""The channel to an engine process that comes and goes."""

import asyncio
import logging
from pathlib import Path

import pytest

from yaie.core.messages import Abort, Accepted, Tokens
from yaie.ipc.channel import Beat, BeatPort, EngineChannel, EnginePort, Events, Loading


def test_commands_wait_for_a_process_that_is_not_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"ipc://{tmp_path}/engine"

    async def main() -> list[object]:
        channel = EngineChannel(address, lambda _: None)
        for name in ("first", "second"):
            channel.send(Abort(name))
            await asyncio.sleep(0.02)
        port = EnginePort(address)
        try:
            found: list[object] = []
            async with asyncio.timeout(5):
                while len(found) < 2:
                    await asyncio.sleep(0.01)
                    found += port.drain(wait_s=0)
            return found
        finally:
            port.close()
            channel.close()

    with caplog.at_level(logging.ERROR):
        assert asyncio.run(main()) == [Abort("first"), Abort("second")]
    assert not caplog.records


async def test_what_an_engine_says_arrives_in_order_and_its_beats_beside_it(
    tmp_path: Path,
) -> None:
    address = f"ipc://{tmp_path}/engine"
    said = [
        Loading("weights"),
        Events([Accepted("r"), Tokens("r", (1,), queued_s=0.5)]),
        Events([Tokens("r", (2, 3), "length", index=1)]),
    ]
    heard: list[object] = []
    channel = EngineChannel(address, heard.append)
    port, beats = EnginePort(address), BeatPort(address)
    try:
        for message in said:
            port.send(message)
            channel.send(Abort("other"))
        beats.send(Beat(0.25, "step", hangs=False))
        async with asyncio.timeout(5):
            while len(heard) < 4:  # noqa: ASYNC110 - the channel tells nobody else
                await asyncio.sleep(0.005)
    finally:
        port.close()
        beats.close()
        channel.close()
    assert [message for message in heard if not isinstance(message, Beat)] == said
    assert Beat(0.25, "step", hangs=False) in heard
