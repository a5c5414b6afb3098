"""One output of a request: it turns tokens into text, and text into parts.

    Tokens → TextStream (characters, stop strings) → parser (reasoning, tool calls) → Delta

Without a parser, everything is text. Log-probabilities and ids wait here until the text of their
tokens is shown, so that a stream sends them together.
"""

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from yaie.core.messages import TokenLogprobs, Tokens
from yaie.text.detokenizer import TextStream
from yaie.text.parts import OutputParser, Part, ReasoningPart, TextPart, ToolCallPart, joined

FinishReason = Literal["stop", "length", "tool_calls"]


class Delta(msgspec.Struct, frozen=True, gc=False):
    """New content of one output; the last delta has a finish_reason.

    `stop_reason`: the stop string, or the stop token id of the request, that ended it. `logprobs`
    and `token_ids`: of the tokens since the last delta, if the request asked for them.
    """

    parts: Sequence[Part]
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    token_ids: tuple[int, ...] = ()

    @property
    def only_text(self) -> str | None:
        """Its text, if it is one text part and nothing else."""
        parts = self.parts
        if len(parts) != 1 or self.finish_reason is not None or self.logprobs or self.token_ids:
            return None
        first = parts[0]
        return first.text if isinstance(first, TextPart) else None


class Output:
    """Makes the deltas of one output.

    Args:
        text: its detokenizer, with its stop strings.
        parser: separates reasoning and tool calls from text; None: everything is text.
        stop_token_ids: the client's own; if one of them ends the output, it is the stop_reason.
        keep_token_ids: whether deltas have the token ids.
        keep_text: whether `raw_text` is kept.

    """

    def __init__(
        self,
        text: TextStream,
        parser: OutputParser | None = None,
        *,
        stop_token_ids: Collection[int] = (),
        keep_token_ids: bool = False,
        keep_text: bool = False,
    ) -> None:
        self._text = text
        self._parser = parser
        self._stop_token_ids = stop_token_ids
        self._keep_token_ids = keep_token_ids
        self._is_bare = parser is None and not keep_token_ids and not keep_text
        self._raw: list[str] | None = [] if keep_text else None
        self._logprobs: list[TokenLogprobs] = []
        self._token_ids: list[int] = []
        self._called_tools = False
        self._reasoning = _ReasoningCount()
        self.finish_reason: FinishReason | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens up to the end of the kept text."""
        return self._text.num_tokens

    @property
    def num_reasoning_tokens(self) -> int:
        """Tokens of the reasoning."""
        return self._reasoning.count

    @property
    def raw_text(self) -> str:
        """The text so far, before parsing. Empty unless `keep_text` is set."""
        return "".join(self._raw or ())

    def text(self, tokens: Tokens) -> str | None:
        """Take tokens and return their text: the fast path, for an output that is only text so far.
        None: these tokens need `advance`, and nothing was done.
        """
        bare = self._is_bare and tokens.finish_reason is None and not tokens.logprobs
        return self._text.push(tokens.token_ids) if bare and self._text.never_stops else None

    def advance(self, tokens: Tokens) -> Delta | None:
        """Take tokens and return what can be shown now; None: nothing yet."""
        before = self._text.num_tokens
        parts = self._plain(tokens) if self._parser is None else self._parse(self._parser, tokens)
        if tokens.logprobs or self._keep_token_ids:
            self._hold(tokens, self._text.num_tokens - before)
        if tokens.finish_reason is not None or self._text.stopped:
            return self._delta(parts, *self._end(tokens))
        if not parts:
            return None
        return self._delta(parts) if self._logprobs or self._token_ids else Delta(parts)

    def _plain(self, tokens: Tokens) -> Sequence[Part]:
        text = self._text.push(tokens.token_ids, stop_token_id=tokens.stop_token_id)
        if tokens.finish_reason is not None:
            text += self._text.finish()
        if self._raw is not None:
            self._raw.append(text)
        return (TextPart(text),) if text else ()

    def _parse(self, parser: OutputParser, tokens: Tokens) -> Sequence[Part]:
        """Parse token by token, so that the tokens of reasoning can be counted."""
        parts: list[Part] = []
        last = len(tokens.token_ids) - 1
        for place, token_id in enumerate(tokens.token_ids):
            stop = tokens.stop_token_id if place == last else None
            before = self._text.num_tokens
            found = self._feed(parser, self._text.push((token_id,), stop_token_id=stop))
            self._reasoning.add(self._text.num_tokens - before, found)
            parts += found
        if tokens.finish_reason is not None or self._text.stopped:
            parts += self._feed(parser, self._text.finish()) + parser.finish()
            self._reasoning.finish()
        self._called_tools |= any(isinstance(part, ToolCallPart) for part in parts)
        return joined(parts)

    def _feed(self, parser: OutputParser, text: str) -> list[Part]:
        if self._raw is not None:
            self._raw.append(text)
        return parser.push(text) if text else []

    def _hold(self, tokens: Tokens, num_kept: int) -> None:
        self._logprobs += tokens.logprobs[:num_kept]
        if self._keep_token_ids:
            self._token_ids += tokens.token_ids[:num_kept]

    def _delta(
        self,
        parts: Sequence[Part],
        reason: FinishReason | None = None,
        stop: str | int | None = None,
    ) -> Delta:
        logprobs, self._logprobs = tuple(self._logprobs), []
        token_ids, self._token_ids = tuple(self._token_ids), []
        return Delta(parts, reason, stop, logprobs, token_ids)

    def _end(self, tokens: Tokens) -> tuple[FinishReason | None, str | int | None]:
        stop: str | int | None = None
        if self._text.stopped:
            self.finish_reason, stop = "stop", self._text.stop_reason
        elif tokens.finish_reason is not None:
            self.finish_reason = "length" if tokens.finish_reason == "length" else "stop"
            stop = tokens.stop_token_id if tokens.stop_token_id in self._stop_token_ids else None
        if self.finish_reason == "stop" and self._called_tools:
            self.finish_reason = "tool_calls"
        return self.finish_reason, stop


class _ReasoningCount:
    """Counts tokens of reasoning. A token without text of its own counts with the next one."""

    def __init__(self) -> None:
        self.count = 0
        self._undecided = 0
        self._reasons = False

    def add(self, num_tokens: int, parts: Sequence[Part]) -> None:
        self._undecided += num_tokens
        if parts:
            self._reasons = isinstance(parts[0], ReasoningPart)
            self.finish()

    def finish(self) -> None:
        if self._reasons:
            self.count += self._undecided
        self._undecided = 0
