"""Answers one prompt: prints the answer to standard output, measurements to standard error."""

import sys

from yaie.cli.chat.client import ChatClient, ChatError, ChatOptions
from yaie.cli.chat.text import TextWriter


async def answer_once(options: ChatOptions, prompt: str) -> int:
    """Print the answer to one prompt and return the exit status.

    Raises:
        YaieError: the endpoint gives no answer.

    """
    async with ChatClient(options) as client:
        model = options.model or await first_model(client)
        writer = TextWriter()
        try:
            stats = await client.answer(model, opening(options.system, prompt), writer.write)
        finally:
            if writer.text:
                writer.end_line()
    print(stats, file=sys.stderr)
    return 0


async def first_model(client: ChatClient) -> str:
    """The name of the first model that the endpoint serves.

    Raises:
        ChatError: the endpoint serves no model.

    """
    names = await client.models()
    if not names:
        raise ChatError("The endpoint serves no model.")
    return names[0]


def opening(system: str | None, prompt: str) -> list[dict[str, str]]:
    """The first messages of a conversation."""
    before = [{"role": "system", "content": system}] if system else []
    return [*before, {"role": "user", "content": prompt}]
