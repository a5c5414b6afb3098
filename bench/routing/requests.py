"""One request of a trace, as routers and caches see it: its body, its keys, its pages."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from routing.cache import PAGE_TOKENS
from routing.traces import Session
from yaie_api import prefix
from yaie_api.prefix import PrefixKeys

SECRET: Final = b"replay"
MODEL: Final = "replayed"


@dataclass(eq=False)
class Request:
    """`pages`: hashes of its prompt's whole pages; `tokens`: of the prompt."""

    session: Session
    turn: int
    body: Mapping[str, Any]
    keys: PrefixKeys
    pages: list[int]
    tokens: int
    answer_tokens: int
    prompt: str
    sent_s: float = 0.0
    first_s: float = 0.0
    ended_s: float = 0.0
    cached: int = 0
    engine: str = ""
    least_missing: bool = True
    told: dict[str, Any] = field(default_factory=dict)


def rendered(messages: list[dict[str, str]]) -> str:
    """What the model is shown: every message begins with its role."""
    return "".join(f"<|{one['role']}|>\n{one['content']}\n" for one in messages)


def pages_of(text: str, bytes_per_token: float) -> tuple[list[int], int]:
    """The hashes of a text's whole pages, and its number of tokens."""
    size = int(PAGE_TOKENS * bytes_per_token)
    tokens = max(1, int(len(text) / bytes_per_token))
    found, last = [], 0
    for start in range(0, tokens // PAGE_TOKENS * size, size):
        last = hash((last, text[start : start + size]))
        found.append(last)
    return found, tokens


def begin(session: Session) -> list[dict[str, str]]:
    """The messages before the first turn."""
    return [{"role": "system", "content": session.system}] if session.system else []


def request(
    session: Session, turn: int, messages: list[dict[str, str]], bytes_per_token: float
) -> Request:
    """The request of a turn; `messages`: with the user's."""
    body = {"model": MODEL, "messages": [*messages]}
    secret = prefix.tenant_key(SECRET, session.tenant)
    prompt = rendered(messages) + "<|assistant|>\n"
    pages, tokens = pages_of(prompt, bytes_per_token)
    salted = [hash((session.tenant, page)) for page in pages]
    return Request(
        session,
        turn,
        body,
        prefix.keys(body, secret),
        salted,
        tokens,
        session.turns[turn].answer_tokens,
        prompt,
    )


def answer(session: Session, turn: int, bytes_per_token: float) -> str:
    """A made up answer."""
    size = int(session.turns[turn].answer_tokens * bytes_per_token)
    seed = json.dumps([session.starts_s, turn])
    return (f"Answer {seed} " + "so it goes on and on " * (size // 20 + 1))[: max(size, 8)]
