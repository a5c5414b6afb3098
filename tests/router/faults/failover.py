"""Kills or freezes one of several real engines under streams of every kind; each is compared with
a whole one.

    PYTHONPATH=tests python -m router.faults.failover --streams 200 [--signal stop]

What is compared is what a client makes of a stream: texts, reasoning, calls, ids, ends, usage, and
log-probabilities but for their last digits. How tokens are spread over events depends on how busy
an engine is, also without a failure. Gaps between the pieces of the survivors' own streams are told
for the time before the kill and after it, and judged from four engines on: see `slower`.
"""

import argparse
import asyncio
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from router.faults.matrix import Stage, real
from yaie_api.names import HEADER_ENDPOINT

CHAT: Final = "/v1/chat/completions"
USAGE: Final = {"stream_options": {"include_usage": True}}
CONTINUOUS: Final = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
WEATHER: Final = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
SCHEMA: Final = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "minLength": 60, "maxLength": 90},
        "b": {"type": "array", "items": {"type": "integer"}, "minItems": 8, "maxItems": 10},
    },
    "required": ["a", "b"],
    "additionalProperties": False,
}
FORM: Final = {
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
}
LOGPROB_DIGITS: Final = 0.01
MOST_TIMES: Final = 2.0
LEAST_ENGINES: Final = 4
LEAST_GAPS: Final = 300
FLOOR_MS: Final = 10.0
SIGNALS: Final = {"kill": "SIGKILL", "stop": "SIGSTOP"}


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 110} | fields


CASES: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    (CHAT, said("Tell me a story.", temperature=0, ignore_eos=True) | USAGE),
    (CHAT, said("Tell me about cats.", seed=7, ignore_eos=True, logprobs=True, top_logprobs=2)),
    (CHAT, said("日本 😀", temperature=1.6, seed=11, ignore_eos=True) | CONTINUOUS),
    (
        "/v1/completions",
        {"prompt": "Once upon a time", "max_tokens": 110, "temperature": 1.4, "seed": 3,
         "ignore_eos": True, "logprobs": 1, "frequency_penalty": 0.7, "repetition_penalty": 1.2},
    ),
    (CHAT, said("What is the weather in Paris?", temperature=0, tools=[WEATHER],
                tool_choice="required")),
    (CHAT, said("Give me JSON.", temperature=1.2, seed=5) | FORM),
    ("/v1/messages", said("Tell me a story.", temperature=0)),
    (CHAT, said("Count.", temperature=1.3, seed=23, min_tokens=90, stop=["zq", "xx y"]) | USAGE),
)  # fmt: skip


@dataclass
class Story:
    """What a client makes of one stream."""

    text: str = ""
    reasoning: str = ""
    calls: list[str] = field(default_factory=list)
    heads: set[str] = field(default_factory=set)
    logprobs: list[tuple[str, float]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    end: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def differs(self, other: "Story") -> list[str]:
        """Names of what is not the same in both."""
        found = [
            name
            for name in ("text", "reasoning", "calls", "offsets", "end", "usage", "errors")
            if getattr(self, name) != getattr(other, name)
        ]
        pairs = list(itertools.zip_longest(self.logprobs, other.logprobs, fillvalue=("", 0.0)))
        if any(a[0] != b[0] or abs(a[1] - b[1]) > LOGPROB_DIGITS for a, b in pairs):
            found.append("logprobs")
        if len(self.heads) != 1:
            found.append("heads")
        return found


def story_of(raw: bytes) -> Story:
    """Read a stream; every event must be whole."""
    story = Story()
    if not raw.endswith((b"data: [DONE]\n\n", b'{"type":"message_stop"}\n\n')):
        story.errors.append(f"ends with {raw[-60:]!r}")
    for block in raw.decode().split("\n\n"):
        for line in block.split("\n"):
            if line.startswith("data: {"):
                _take(story, json.loads(line[6:]))
    return story


def _take(story: Story, event: dict[str, Any]) -> None:
    if event.get("error"):
        story.errors.append(str(event["error"]))
    elif "choices" in event:
        story.heads.add(str((event["id"], event["created"], event["model"])))
        if usage := event.get("usage"):
            story.usage = {k: v for k, v in usage.items() if k != "prompt_tokens_details"}
        for choice in event["choices"]:
            _take_choice(story, choice)
    elif event["type"] == "message_start":
        story.heads.add(event["message"]["id"])
    elif event["type"] == "content_block_delta":
        story.text += event["delta"].get("text", "")
    elif event["type"] == "message_delta":
        story.end = str(event["delta"])
        story.usage = {"output_tokens": event["usage"]["output_tokens"]}


def _take_choice(story: Story, choice: dict[str, Any]) -> None:
    delta = choice.get("delta") or {}
    story.text += (delta.get("content") or "") + (choice.get("text") or "")
    story.reasoning += delta.get("reasoning") or ""
    for call in delta.get("tool_calls") or []:
        story.calls += [call["function"].get("name") or "", call["function"]["arguments"]]
    story.calls = ["".join(story.calls)] if story.calls else []
    told = choice.get("logprobs") or {}
    story.logprobs += [(one["token"], one["logprob"]) for one in told.get("content", ())]
    story.logprobs += zip(told.get("tokens", ()), told.get("token_logprobs", ()), strict=True)
    story.offsets += told.get("text_offset", ())
    if choice.get("finish_reason"):
        story.end = str((choice["finish_reason"], choice.get("stop_reason")))


@dataclass(frozen=True)
class Gaps:
    """Seconds between pieces of the survivors' own streams, before the kill and after it."""

    before: list[float]
    after: list[float]

    @property
    def told(self) -> str:
        """Medians and 99th percentiles, in a line."""
        told = ", ".join(quantiles_ms(gaps) for gaps in (self.before, self.after))
        return f"survivors' gaps p50/p99 ms, before and after: {told}"


def p99_ms(gaps: list[float]) -> float:
    """Return the 99th percentile of seconds, as milliseconds."""
    return statistics.quantiles(gaps, n=100)[98] * 1e3


def quantiles_ms(gaps: list[float]) -> str:
    """Median and 99th percentile of seconds, as milliseconds."""
    if len(gaps) < LEAST_GAPS:
        return f"only {len(gaps)} gaps"
    return f"{statistics.median(gaps) * 1e3:.0f}/{p99_ms(gaps):.0f}"


def slower(gaps: Gaps, engines: int) -> list[str]:
    """Return what is wrong if survivors are more than twice as slow after a kill as before it.

    The promise is for four engines; with fewer, a survivor gets half as many streams again, or
    twice as many. The percentile of few gaps is one gap, so they are not judged. A p99 of a few
    milliseconds tells of the machine's scheduler, not of engines, so the one before the kill counts
    as 10 ms at least.
    """
    if engines < LEAST_ENGINES or min(len(gaps.before), len(gaps.after)) < LEAST_GAPS:
        return []
    most_ms = MOST_TIMES * max(p99_ms(gaps.before), FLOOR_MS)
    after_ms = p99_ms(gaps.after)
    return [f"survivors' p99 {after_ms:.0f} ms, above {most_ms:.0f}"] if after_ms > most_ms else []


@dataclass
class Load:
    """Streams through the router. `reads`: how often a client got bytes. `gaps`: of the streams
    that began on survivors, when each piece but the first came, and how long after the last one.
    `longest_s`: the longest pause of a stream that began on the engine that fails. `begun_s`: when
    the load began.
    """

    stage: Stage
    session: aiohttp.ClientSession
    reads: int = 0
    gaps: list[tuple[float, float]] = field(default_factory=list)
    longest_s: float = 0.0
    begun_s: float = field(default_factory=time.monotonic)

    async def ask(self, number: int) -> Story:
        """Play a case, and read its stream to the end."""
        path, fields = CASES[number % len(CASES)]
        body = {"model": self.stage.model, "stream": True} | fields
        raw = b""
        async with self.session.post(self.stage.router.url + path, json=body) as response:
            assert response.status == 200, await response.text()
            is_survivor = response.headers[HEADER_ENDPOINT] != self.stage.bad
            last_s = 0.0
            async for data in response.content.iter_any():
                raw += data
                self.reads += 1
                now_s = time.monotonic()
                if is_survivor and last_s:
                    self.gaps.append((now_s, now_s - last_s))
                elif last_s:
                    self.longest_s = max(self.longest_s, now_s - last_s)
                last_s = now_s
        return story_of(raw)

    def gaps_around(self, killed_s: float) -> Gaps:
        """Divide the gaps. One into which the kill falls is after it, which may be the reason. Both
        times are equally long: at the end, where few streams are left, gaps are short anyway.
        """
        until_s = 2 * killed_s - self.begun_s
        return Gaps(
            before=[gap_s for at_s, gap_s in self.gaps if at_s < killed_s],
            after=[gap_s for at_s, gap_s in self.gaps if killed_s <= at_s < until_s],
        )

    async def failovers(self) -> Iterator[str]:
        """The router's lines about them, but for zeros."""
        async with self.session.get(self.stage.router.metrics_url) as response:
            lines = (await response.text()).splitlines()
        wanted = ("yaie_router_failovers_total", "yaie_router_broken_streams_total")
        return (one for one in lines if one.startswith(wanted) and not one.endswith(" 0.0"))


async def kill_one(
    folder: Path, streams: int, seed: int, *, engines: int = LEAST_ENGINES, how: str = "kill"
) -> list[str]:
    """Kill or stop an engine at a random token. Return what is wrong; a line for each stream."""
    rng = random.Random(seed)
    timeout = aiohttp.ClientTimeout(total=600)
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        real(folder, engines=engines) as stage,
        aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
    ):
        whole = await whole_ones(Load(stage, session))
        load = Load(stage, session)
        asking = [asyncio.create_task(load.ask(number)) for number in range(streams)]
        until = streams * rng.randint(2, 25)
        while load.reads < until and not all(one.done() for one in asking):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        killed_s = time.monotonic()
        await stage.break_it(SIGNALS[how])
        answers = await asyncio.gather(*asking)
        told = list(await load.failovers())
    gaps = load.gaps_around(killed_s)
    print(
        "\n".join(told),
        gaps.told,
        f"longest pause of a stream that went on: {load.longest_s:.2f} s",
        sep="\n",
        flush=True,
    )
    wrong = [
        f"{number}: {name}: {getattr(answer, name)!r} instead of {getattr(model, name)!r}"
        for number, answer in enumerate(answers)
        for model in [whole[number % len(CASES)]]
        for name in answer.differs(model)
    ]
    if not any('outcome="continued"' in line for line in told):
        wrong.append("no stream had to go on elsewhere")
    return wrong + slower(gaps, engines)


async def whole_ones(load: Load) -> list[Story]:
    """Play each case once, without a failure."""
    return await asyncio.gather(*(load.ask(number) for number in range(len(CASES))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--engines", type=int, default=LEAST_ENGINES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--signal", choices=SIGNALS, default="kill", help="stop: it only freezes")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = asyncio.run(
            kill_one(
                Path(folder), given.streams, given.seed, engines=given.engines, how=given.signal
            )
        )
    print("\n".join(wrong) or f"{given.streams} streams are whole")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
