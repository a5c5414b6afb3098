"""A conversation on a terminal: prompt, commands, streamed answers, history."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from yaie.cli.chat.client import AnswerStats, ChatClient, ChatOptions
from yaie.cli.chat.once import first_model
from yaie.cli.chat.text import TextWriter
from yaie_api.errors import YaieError

ENV_NO_HISTORY: Final = "YAIE_NOHISTORY"
QUOTES: Final = '"""'
HELP: Final = """\
  /system TEXT   set the system message (without TEXT: show it)
  /model NAME    talk to another model (without NAME: list them)
  /clear         forget the conversation
  /stats         measurements of the last answer
  /bye           leave (or Ctrl-D)
Alt-Enter starts a new line; \"\"\" opens and closes a text of several lines.
Ctrl-C stops an answer."""


class Reader(Protocol):
    """Reads a line from the user."""

    async def __call__(self, prompt: str) -> str: ...


async def converse(options: ChatOptions) -> int:
    """Run the conversation until the user leaves, and return the exit status.

    Raises:
        YaieError: the endpoint cannot be reached, or serves no model.

    """
    async with ChatClient(options) as client:
        model = options.model or await first_model(client)
        print(f"Talking to {model}. /help lists commands, Ctrl-D leaves.")
        conversation = Conversation(client, model, options.system)
        reader = terminal_reader()
        while (text := await read_message(reader)) is not None:
            if not await conversation.handle(text):
                break
    return 0


class Conversation:
    """The messages of a conversation, and the user's commands."""

    def __init__(self, client: ChatClient, model: str, system: str | None) -> None:
        self._client = client
        self._model = model
        self._system = system
        self._turns: list[dict[str, str]] = []
        self._stats: AnswerStats | None = None
        self._commands: dict[str, Callable[[str], Awaitable[None]]] = {
            "/help": self._help,
            "/clear": self._clear,
            "/system": self._set_system,
            "/model": self._set_model,
            "/stats": self._show_stats,
        }

    async def handle(self, text: str) -> bool:
        """Answer a message or execute a command; False if the user wants to leave."""
        command, _, rest = text.partition(" ")
        if command in ("/bye", "/exit", "/quit"):
            return False
        try:
            if command in self._commands:
                await self._commands[command](rest.strip())
            elif command.startswith("/") and "/" not in command[1:]:
                print(f"Unknown command {command}. /help lists them.")
            elif text.strip():
                await self._answer(text)
        except YaieError as error:
            print(error.message, file=sys.stderr)
        return True

    async def _answer(self, text: str) -> None:
        turns = [*self._turns, {"role": "user", "content": text}]
        system = [{"role": "system", "content": self._system}] if self._system else []
        writer = TextWriter()
        try:
            self._stats = await interruptible(
                self._client.answer(self._model, [*system, *turns], writer.write)
            )
        finally:
            if writer.text:
                writer.end_line()
                self._turns = [*turns, {"role": "assistant", "content": writer.text}]
        if self._stats is None:
            print("(stopped)")

    async def _help(self, rest: str) -> None:
        del rest
        print(HELP)

    async def _clear(self, rest: str) -> None:
        del rest
        self._turns = []
        print("The conversation is forgotten.")

    async def _set_system(self, rest: str) -> None:
        if rest:
            self._system = rest
        print(f"System message: {self._system or '(none)'}")

    async def _set_model(self, rest: str) -> None:
        names = await self._client.models()
        if not rest:
            print("\n".join(f"{'*' if name == self._model else ' '} {name}" for name in names))
        elif rest in names:
            self._model = rest
            print(f"Talking to {rest}.")
        else:
            print(f"There is no model {rest}. There are: {', '.join(names)}.")

    async def _show_stats(self, rest: str) -> None:
        del rest
        if self._stats is None:
            print("No answer has ended yet.")
            return
        stats = self._stats
        print(f"{stats} · {stats.tokens} tokens · {stats.seconds:.2f} s · {stats.finish_reason}")
        print(f"prompt {stats.prompt_tokens} tokens, {stats.cached_tokens} of them cached")


async def interruptible(work: Awaitable[AnswerStats]) -> AnswerStats | None:
    """The result of `work`, or None if the user pressed Ctrl-C meanwhile."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        return None
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def read_message(reader: Reader) -> str | None:
    """The next message; None at the end of input, "" after Ctrl-C."""
    try:
        text = await reader(">>> ")
        while text.startswith(QUOTES) and not text[len(QUOTES) :].rstrip().endswith(QUOTES):
            text += "\n" + await reader("... ")
    except EOFError:
        return None
    except KeyboardInterrupt:
        print("/bye or Ctrl-D leaves.")
        return ""
    if text.startswith(QUOTES):
        return text.strip().removeprefix(QUOTES).removesuffix(QUOTES).strip("\n")
    return text.strip()


def terminal_reader() -> Reader:
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(history=_history(), key_bindings=keys)

    async def read(prompt: str) -> str:
        style = "" if "NO_COLOR" in os.environ else "bold"
        return await session.prompt_async(FormattedText([(style, prompt)]))

    return read


def _history() -> History:
    """The history file in the user's state folder, readable only by the user."""
    if os.environ.get(ENV_NO_HISTORY):
        return InMemoryHistory()
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    path = Path(state) / "yaie" / "chat_history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError:  # a read-only home: the conversation works without history
        return InMemoryHistory()
    return FileHistory(str(path))
