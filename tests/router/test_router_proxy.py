"""What the router promises about one request, over real sockets."""

from router.conftest import Stack
from router.fakes import DONE, FakeEngine, event


async def test_a_stream_arrives_byte_for_byte(stack: Stack) -> None:
    pieces = [b": ping\n\n", event("é\u2028x"), event("z" * 5000)[:-1], b"\n", DONE]
    await stack.serve("demo", FakeEngine("pod-a", pieces=pieces))
    async with stack.chat() as response:
        assert response.status == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert await response.read() == b"".join(pieces)
