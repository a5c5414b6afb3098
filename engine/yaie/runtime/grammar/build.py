"""Builds a matcher from a grammar and a vocabulary. No other module builds llguidance's matchers.

llguidance's error texts name its own options and quote the grammar; users get our texts instead.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from yaie.core.request import Grammar, ReasoningBlock
from yaie.text.grammar import lark
from yaie_api.errors import InvalidRequestError

LIMITS: Final = LLParserLimits(
    initial_lexer_fuel=1_000_000,  # about 20 ms of work on regular expressions
    step_lexer_fuel=1_000_000,  # at worst 70 ms for one mask: the loop waits for it
    step_max_items=50_000,  # about 3 ms for one mask
    max_lexer_states=50_000,  # up to 2 KiB each
    max_grammar_size=500_000,
    verbose_errors=False,  # verbose errors quote the output
)

MAX_REASON: Final = 300
ANY_TEXT: Final = "/(?s:.*)/"

_REASONS: Final = (
    ("oneOf constraints", "oneOf needs alternatives that exclude each other; use anyOf"),
    ("min/maxProperties", "minProperties and maxProperties need every property to be required"),
    ("too large", "it is too large"),
    ("too complex", "it is too complex"),
    ("fuel", "it is too complex"),
    ("limit", "it is too complex"),
    ("stack level", "it is nested too deeply"),
    ("Unable to determine if regex is empty", "its patterns are too complex together"),
    ("lookarounds not", "look-around, \\b, and ^ or $ inside a pattern are not supported"),
    ("integer range", "no integer of 64 bits is within its bounds"),
    ("NoExtension", "no text has it"),
    ("panic", "it is too complex"),
    ("<non-verbose/>", "it is too complex"),  # a limit was reached in the first mask
)


def load_vocabulary(folder: Path, vocab_size: int, eos_token_ids: Sequence[int]) -> LLTokenizer:
    """Read the vocabulary of a model folder.

    `vocab_size`: width of the model's logits, often more than the tokenizer's tokens; the ids
    beyond the tokenizer's are never allowed. `eos_token_ids` are allowed wherever a grammar may
    end.

    Raises:
        InvalidRequestError: the bytes of the vocabulary's tokens cannot be determined.

    """
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    try:
        return LLTokenizer(text, n_vocab=vocab_size, eos_token=list(eos_token_ids) or None)
    except BaseException as error:
        if not _is_builders(error):
            raise
        raise InvalidRequestError(
            "This model's vocabulary does not allow structured output.", param="structured_outputs"
        ) from error


def build(vocabulary: LLTokenizer, grammar: Grammar) -> LLMatcher:
    """Build a matcher at the start of the grammar, with its first mask computed already.

    Raises:
        InvalidRequestError: the grammar is wrong, unsupported or over a limit.

    """
    try:
        matcher = LLMatcher(vocabulary, _source(vocabulary, grammar), log_level=0, limits=LIMITS)
        if not matcher.is_error():
            matcher.compute_bitmask()
        problem = matcher.get_error()
    except BaseException as error:
        if not _is_builders(error):
            raise
        raise _refusal(grammar, str(error)) from error
    if problem:
        raise _refusal(grammar, problem)
    return matcher


def refusal(grammar: Grammar, reason: str) -> InvalidRequestError:
    """The error for a grammar that cannot be used; it names the request's field and the reason."""
    return InvalidRequestError(f"The output's form cannot be used: {reason}.", param=grammar.param)


def _source(vocabulary: LLTokenizer, grammar: Grammar) -> str:
    """The grammar in llguidance's JSON: the structure, and the reasoning block that may come before
    it.
    """
    form = {"name": "form", **_form(vocabulary, grammar)}
    if grammar.after is None:
        return json.dumps({"grammars": [form]})
    before = {"name": "before", "lark_grammar": _before(vocabulary, grammar.after)}
    return json.dumps({"grammars": [before, form]})


def _form(vocabulary: LLTokenizer, grammar: Grammar) -> dict[str, Any]:
    match grammar.kind:
        case "json_schema":
            return {"json_schema": lark.styled(json.loads(grammar.text))}
        case "regex":
            (form,) = json.loads(LLMatcher.grammar_from_regex(grammar.text))["grammars"]
            return {"lark_grammar": form["lark_grammar"]}
        case "lark":
            return {"lark_grammar": grammar.text + _markers(vocabulary, grammar.markers)}


def _before(vocabulary: LLTokenizer, block: ReasoningBlock) -> str:
    free = "until_1 BREAK" if block.opened else "(marker_0 until_1 BREAK)?"
    rules = f"start: {free} @form\nBREAK: /\\n{{0,2}}/"
    return rules + _markers(vocabulary, (block.start, block.end))


def _markers(vocabulary: LLTokenizer, markers: Sequence[str]) -> str:
    """The rules `marker_i`, `until_i`, `text_until_i` and `free_text` (see `Grammar`), for Lark
    texts.

    Patterns never match special tokens. If a marker is a special token, free text is therefore any
    token except the marker and EOS. This costs nothing, and it allows other special tokens, which
    some models use as text. `text_until_i` is always a pattern, so that it can stand next to other
    patterns.
    """
    if not markers:
        return ""
    ids = [_special_id(vocabulary, marker) for marker in markers]
    lines = ["", f"free_text: {_free(vocabulary, ids[0])}"]
    for index, (marker, token_id) in enumerate(zip(markers, ids, strict=True)):
        if token_id is not None:
            lines.append(f"marker_{index}: <[{token_id}]>")
            lines.append(f"until_{index}: {_free(vocabulary, token_id)} marker_{index}")
            lines.append(f"text_until_{index}: {ANY_TEXT} marker_{index}")
        else:
            pattern = re.escape(marker).replace("/", "\\/")
            lines.append(f"marker_{index}: {lark.literal(marker)}")
            lines.append(f"until_{index}[lazy]: /(?s:.*){pattern}/")
            lines.append(f"text_until_{index}: until_{index}")
    return "\n".join(lines)


def _special_id(vocabulary: LLTokenizer, marker: str) -> int | None:
    token_ids = vocabulary.tokenize_str(marker, parse_special=True)
    single = len(token_ids) == 1 and vocabulary.is_special_token(token_ids[0])
    return token_ids[0] if single else None


def _free(vocabulary: LLTokenizer, end: int | None) -> str:
    if end is None:
        return ANY_TEXT
    barred = [*map(str, sorted({end, *vocabulary.eos_tokens})), *_padding(vocabulary)]
    return f"<[^{','.join(barred)}]>*"


def _padding(vocabulary: LLTokenizer) -> list[str]:
    """The range of ids beyond the tokenizer's. llguidance decodes such an id N as "<[N]>"."""
    end = vocabulary.vocab_size
    first = end
    while first > 0 and vocabulary.decode_bytes([first - 1]) == b"<[%d]>" % (first - 1):
        first -= 1
    return [f"{first}-{end - 1}"] if first < end else []


def _is_builders(error: BaseException) -> bool:
    """Whether llguidance may have raised `error`: an Exception, or a panic of its Rust code, which
    derives from BaseException.
    """
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _refusal(grammar: Grammar, problem: str) -> InvalidRequestError:
    return refusal(grammar, _reason(problem))


def _reason(problem: str) -> str:
    for sign, reason in _REASONS:
        if sign in problem:
            return reason
    lines = [line.strip() for line in problem.splitlines() if line.strip()]
    first = lines[0] if lines else "it is not understood"
    told = next((line for line in lines if line.startswith("error: ")), first)
    told, _, _ = told.partition("; following special tokens")
    told = re.sub(r"^(error|at \d+\(\d+\)): ", "", told)
    return re.sub(r"(?i)llguidance|derivre|regex_syntax", "it", told)[:MAX_REASON].rstrip(". :")
