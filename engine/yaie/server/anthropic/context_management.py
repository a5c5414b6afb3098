"""Applies a request's `context_management`, and tells what it has taken out.

The decisions are `context_edits`'; here the tokens of a conversation are counted before and after.
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from yaie.server.anthropic.context_edits import clear_thinking, clear_tool_uses, is_pulled
from yaie.server.anthropic.input import to_chat
from yaie.server.request.prompts import chat_ids
from yaie.server.service import Service
from yaie_api.errors import InvalidRequestError
from yaie_api.http.anthropic import ContextEdit, CountTokensRequest

Body = TypeVar("Body", bound=CountTokensRequest)


@dataclass(frozen=True, slots=True)
class Managed(Generic[Body]):
    """A request after its edits. `applied`: what was taken out, in Anthropic's form."""

    body: Body
    applied: tuple[dict[str, Any], ...] = ()


async def manage(service: Service, body: Body) -> Managed[Body]:
    """Apply the edits in order. One that would take nothing out is not applied, nor told.

    Raises:
        InvalidRequestError: an edit is wrong.

    """
    edits = (body.context_management and body.context_management.edits) or ()
    applied = []
    for edit in edits:
        thinks = edit.type == "clear_thinking_20251015"
        cleared = (clear_thinking if thinks else clear_tool_uses)(body.messages, edit)
        if not cleared.count:
            continue
        before = await num_tokens(service, body)
        if not thinks and not is_pulled(edit, body.messages, before):
            continue
        shorter = body.model_copy(update={"messages": cleared.turns})
        fewer = before - await num_tokens(service, shorter)
        if fewer < _least(edit):
            continue
        body = shorter
        what = "cleared_thinking_turns" if thinks else "cleared_tool_uses"
        told = {"type": edit.type, what: cleared.count, "cleared_input_tokens": max(0, fewer)}
        applied.append(told)
    return Managed(body, tuple(applied))


async def num_tokens(service: Service, body: CountTokensRequest) -> int:
    """Count the tokens of a request's prompt, which may be of any length."""
    return len(await chat_ids(service, to_chat(body), limited=False))


def _least(edit: ContextEdit) -> int:
    """Tokens that an edit must take out to be worth a new prefix."""
    if edit.clear_at_least is None or edit.type == "clear_thinking_20251015":
        return -(2**63)
    if edit.clear_at_least.type != "input_tokens":
        raise InvalidRequestError("clear_at_least counts input_tokens.", param="context_management")
    return edit.clear_at_least.value
