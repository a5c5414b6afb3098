"""Which items of a conversation go first when it does not fit."""

from typing import Any

from yaie.server.responses.truncation import shortened, without

SYSTEM = {"role": "developer", "content": "s"}
CALL = {"type": "function_call", "call_id": "c", "name": "f"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "o"}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def fitted(items: list[dict[str, Any]], most: int) -> list[dict[str, Any]] | None:
    async def fits(kept: list[dict[str, Any]]) -> bool:
        return len(kept) <= most

    return await shortened(items, fits)


async def test_the_oldest_go_and_no_more_than_must() -> None:
    turns = [SYSTEM, *(user(str(n)) for n in range(40))]
    for most in range(2, 40):
        kept = await fitted(turns, most)
        assert kept == [SYSTEM, *turns[-most + 1 :]]


async def test_the_system_message_and_the_last_question_stay() -> None:
    items = [SYSTEM, user("old"), user("question"), CALL, OUTPUT]
    assert await fitted(items, 4) == [SYSTEM, user("question"), CALL, OUTPUT]
    assert await fitted(items, 3) is None
    assert await fitted([user("long")], 0) is None


async def test_an_output_goes_with_its_call() -> None:
    items = [user("old"), CALL, OUTPUT, user("question")]
    assert without(items, [1]) == [user("old"), user("question")]
    assert await fitted(items, 2) == [user("question")]
