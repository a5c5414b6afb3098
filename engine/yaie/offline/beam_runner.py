"""Runs beam searches: each step asks the engine for the next token of every beam, in one batch."""

from collections.abc import Sequence

from yaie.core.messages import Generate
from yaie.core.request import SamplingParams
from yaie.offline.beam_search import Search
from yaie.offline.driver import Driver
from yaie.offline.requests import TextRequest
from yaie_api.errors import EngineError


def run(searches: Sequence[Search], driver: Driver) -> None:
    """Step the searches until all are over.

    Raises:
        YaieError: the engine refused or failed on a beam.

    """
    while going := [search for search in searches if search.running]:
        batch = [_requests(search, driver) for search in going]
        driver.run([request for requests in batch for request in requests], shown=False)
        for search, requests in zip(going, batch, strict=True):
            search.advance([_next_logprobs(request) for request in requests])


def _requests(search: Search, driver: Driver) -> list[TextRequest]:
    step = SamplingParams(max_tokens=1, temperature=0.0, logprobs=search.n_logprobs)
    prompts = [search.prompt + beam.token_ids for beam in search.running]
    messages = [Generate(driver.new_id(), prompt, step) for prompt in prompts]
    return [TextRequest(message, None, None) for message in messages]


def _next_logprobs(request: TextRequest) -> dict[int, float]:
    """The most likely next tokens of a beam, by id."""
    (answer,) = request.output().outputs
    if not answer.logprobs:
        raise EngineError(answer.error or "The engine failed on this request.")
    return {token_id: entry.logprob for token_id, entry in answer.logprobs[0].items()}
