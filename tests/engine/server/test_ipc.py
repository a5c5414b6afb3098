"""The channel to an engine process that comes and goes."""

import asyncio
import logging
from pathlib import Path

import pytest

from yaie.core.messages import Abort
from yaie.server.ipc import EngineChannel, EnginePort


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
