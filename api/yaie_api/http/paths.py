"""What a request for an unknown path is told."""

import difflib
from collections.abc import Iterable
from typing import Final

from yaie_api.errors import NotFoundError

_OLLAMA: Final = {
    "/api/chat": "/v1/chat/completions",
    "/api/generate": "/v1/completions",
    "/api/embed": "/v1/embeddings",
    "/api/embeddings": "/v1/embeddings",
    "/api/tags": "/v1/models",
    "/api/ps": "/v1/models",
    "/api/version": "/version",
}
_LONGEST: Final = 200
"""Longer paths are not compared with the known ones: the time for that grows with their length."""


def no_such_path(path: str, known: Iterable[str]) -> NotFoundError:
    """The error for `path`, with the path of `known` that was probably meant; those with
    placeholders are left out.
    """
    meant = closest(path, known)
    hint = f"Did you mean {meant}?" if meant else "The API is under /v1."
    return NotFoundError(f"No such path. {hint}", code="path_not_found")


def closest(path: str, known: Iterable[str]) -> str | None:
    """The path of `known` that was probably meant, without placeholders; None: it is like none."""
    return _meant(path, tuple(one for one in known if "{" not in one))


def _meant(path: str, known: tuple[str, ...]) -> str | None:
    """Base URLs with /v1 missing or twice, a slash at the end, Ollama's paths, wrong letters, the
    child of a path, the beginning of one.
    """
    if len(path) > _LONGEST:
        return None
    end = path.rstrip("/")
    while end.startswith("/v1/v1/"):
        end = end.removeprefix("/v1")
    candidates = (end, f"/v1{end}", _OLLAMA.get(end, ""))
    exact = next((one for one in candidates if one != path and one in known), None)
    if exact is not None:
        return exact
    close = difflib.get_close_matches(end, known, n=1, cutoff=0.8)
    if close:
        return close[0]
    parents = [one for one in known if end.startswith(f"{one}/")]
    children = [one for one in known if one.startswith(f"{end}/")] if end not in ("", "/v1") else []
    return max(parents, key=len, default=None) or min(children, key=len, default=None)
