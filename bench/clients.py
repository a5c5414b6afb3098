"""The clients of an open-loop load: several processes, so that the client is not what is measured.

All processes share one clock (CLOCK_MONOTONIC is the machine's) and one start; a request goes out
at its time whether or not earlier ones have ended.
"""

import asyncio
import json
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import aiohttp
from arrivals import Arrival
from summary import Outcome

HEAD_START_S = 1.0  # until all processes are there
OVERTIME_S = 60.0  # past the deadline, until a silent process is given up
ERROR_CHARACTERS = 200


@dataclass(frozen=True)
class Target:
    """An OpenAI server: base URL without `/v1`, and the model's name there."""

    url: str
    model: str


def load(
    target: Target, work: Sequence[Arrival], processes: int, grace_s: float
) -> tuple[list[Outcome], float]:
    """Send the work; returns (outcomes, the moment it began).

    Args:
        target: whom to ask.
        work: by time; the processes take turns, as Poisson arrivals stay Poisson that way.
        processes: how many.
        grace_s: how long after the last arrival a request may still run before it is cut off.

    Raises:
        TimeoutError: a client process does not return.
        BrokenProcessPool: one died.

    """
    start_s = time.monotonic() + HEAD_START_S
    deadline_s = start_s + work[-1].at_s + grace_s
    parts = [part for i in range(processes) if (part := work[i::processes])]
    with ProcessPoolExecutor(len(parts), multiprocessing.get_context("fork")) as pool:
        futures = [pool.submit(_process, target, part, start_s, deadline_s) for part in parts]
        limit_s = deadline_s - time.monotonic() + OVERTIME_S
        return [outcome for future in futures for outcome in future.result(limit_s)], start_s


def _process(
    target: Target, work: Sequence[Arrival], start_s: float, deadline_s: float
) -> list[Outcome]:
    return asyncio.run(_client(target, work, start_s, deadline_s))


async def _client(
    target: Target, work: Sequence[Arrival], start_s: float, deadline_s: float
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
    ) as session:
        tasks = [
            asyncio.ensure_future(_ask(session, target, arrival, start_s, outcomes))
            for arrival in work
        ]
        _, late = await asyncio.wait(tasks, timeout=max(0.0, deadline_s - time.monotonic()))
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for task in tasks:
            if not task.cancelled():
                task.result()  # a mistake of ours ends the run
    return outcomes


async def _ask(
    session: aiohttp.ClientSession,
    target: Target,
    arrival: Arrival,
    start_s: float,
    outcomes: list[Outcome],
) -> None:
    """Send one request at its time and watch its answer."""
    planned_s = start_s + arrival.at_s
    await asyncio.sleep(max(0.0, planned_s - time.monotonic()))
    now_s = time.monotonic()
    outcome = Outcome(len(arrival.prompt), arrival.max_tokens, now_s, now_s - planned_s)
    outcomes.append(outcome)
    try:
        async with session.post(
            target.url + "/v1/completions", json=_body(target.model, arrival)
        ) as answer:
            if answer.status == 200:
                await _watch(answer, outcome)
            else:
                text = (await answer.text())[:ERROR_CHARACTERS]
                outcome.error = f"{answer.status} {text}"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        outcome.error = repr(error)[:ERROR_CHARACTERS]


def _body(model: str, arrival: Arrival) -> dict[str, object]:
    return {
        "model": model,
        "prompt": arrival.prompt,
        "max_tokens": arrival.max_tokens,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def _watch(answer: aiohttp.ClientResponse, outcome: Outcome) -> None:
    """Note when chunks with choices arrive. One loop, as it runs for each token of the load."""
    async for line in answer.content:
        if not line.startswith(b"data: "):
            continue
        if line.startswith(b"data: [DONE]"):
            break
        if b'"completion_tokens"' in line and (usage := json.loads(line[6:]).get("usage")):
            outcome.usage = usage["completion_tokens"]
        if b'"choices":[]' in line or b'"choices": []' in line:
            continue
        now_s = time.monotonic()
        if outcome.last_s is None:
            outcome.ttft_s = now_s - outcome.start_s
        else:
            outcome.gaps_s.append(now_s - outcome.last_s)
        outcome.last_s = now_s
