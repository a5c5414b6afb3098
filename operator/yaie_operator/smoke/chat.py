"""One streamed chat completion with the standard library alone, and what its failure means."""

import http.client
import json
import ssl
import time
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUESTION = "What is a river?"
MAX_TOKENS = 32


class NotYetError(Exception):
    """No answer yet; the message says what is in the way, for people."""


@dataclass(frozen=True)
class Answer:
    """What the model said, and the seconds from the request to the end of the stream."""

    text: str
    seconds: float


def ask(
    url: str, model: str, *, timeout_s: float, key: str = "", ca_dir: Path | None = None
) -> Answer:
    """Ask the model. `url`: base URL of the API. `key`: an API key; "": none is shown. `ca_dir`:
    certificates in the files there are trusted, too.

    Raises:
        NotYetError: nobody listens, the model is unknown or not ready, or the answer is none.

    """
    started = time.monotonic()
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=timeout_s)
    if parts.scheme == "https":
        tls = _trusting(ca_dir)
        connection = http.client.HTTPSConnection(parts.netloc, timeout=timeout_s, context=tls)
    body = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": MAX_TOKENS,
        "stream": True,
    }
    try:
        connection.request(
            "POST",
            f"{parts.path}/chat/completions",
            json.dumps(body),
            {"content-type": "application/json"}
            | ({"authorization": f"Bearer {key}"} if key else {}),
        )
        response = connection.getresponse()
        content = response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        why = str(error) or type(error).__name__
        raise NotYetError(f"no router answers at {parts.netloc}: {why}") from None
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise NotYetError(f"{response.status}: {_message(content)}")
    return Answer(_text(content), time.monotonic() - started)


def _trusting(ca_dir: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for path in sorted(ca_dir.glob("*.crt")) if ca_dir else ():
        context.load_verify_locations(path)
    return context


def _message(content: str) -> str:
    """The sentence of an error's envelope; another body's beginning."""
    try:
        return str(json.loads(content)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return content[:200]


def _text(content: str) -> str:
    """The text of a stream. Raises NotYetError if it ends early, with an error or without text."""
    events = [line.removeprefix("data: ") for line in content.splitlines() if line]
    if not events or events[-1] != "[DONE]":
        raise NotYetError(f"the stream ended early: {content[-200:]!r}")
    chunks: list[dict[str, Any]] = [json.loads(event) for event in events[:-1]]
    if failed := [chunk["error"] for chunk in chunks if "error" in chunk]:
        raise NotYetError(f"the stream failed: {failed[0].get('message')}")
    deltas = (choice["delta"] for chunk in chunks for choice in chunk["choices"])
    text = "".join(delta.get("content") or "" for delta in deltas)
    if not text.strip():
        raise NotYetError("the answer has no text")
    return text
