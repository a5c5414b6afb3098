"""The results of a step while they are copied to the host, and the StepResult made of them."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from yaie.core.batch import FORBIDDEN, Row, StepResult
from yaie.core.messages import TokenLogprobs
from yaie.runtime.sampling.logprobs import LogprobTensors
from yaie.runtime.sampling.metadata import NO_LOGPROBS, SamplingMetadata
from yaie.runtime.sampling.sampler import SamplerOutput
from yaie.runtime.sampling.verification import count_right
from yaie.runtime.tensors.inputs import Ints
from yaie.runtime.tensors.transfer import Downloads


class PendingOutput:
    """Results of the rows of one step. `result` may be called after `downloads.wait()`.

    Args:
        step_id: of the batch.
        rows: of the batch.
        sampled: [S] row number of each draw, ascending.
        plan: sampling metadata of the draws.
        device: where the results are computed.
        has_drafts: whether a row has several draws.

    """

    def __init__(
        self,
        step_id: int,
        rows: Sequence[Row],
        sampled: Ints,
        plan: SamplingMetadata,
        device: torch.device,
        *,
        has_drafts: bool = False,
    ) -> None:
        self.downloads = Downloads(device)
        self._step_id = step_id
        self._rows = rows
        self._sampled = sampled
        self._plan = plan
        self._has_drafts = has_drafts
        self._drawn: torch.Tensor | None = None
        self._places: Ints | None = None
        self._scores: LogprobTensors | None = None
        self._prompt_scores: dict[int, LogprobTensors] = {}
        self._vectors: dict[int, torch.Tensor] = {}

    def draw(self, drawn: SamplerOutput, places: Ints | None = None) -> None:
        """Start to copy the sampled tokens. Draw i of the step is entry `places[i]` of `drawn`, or
        entry i without `places`.
        """
        self._places = places
        tokens = drawn.tokens
        if drawn.forbidden is not None:
            tokens = tokens.masked_fill(drawn.forbidden, FORBIDDEN)
        output = torch.stack((tokens, drawn.finite.to(torch.int64)))
        self._drawn = self.downloads.start(output)

    def score(self, scores: LogprobTensors) -> None:
        """Start to copy the log-probabilities of the draws that need them."""
        self._scores = scores.download(self.downloads)

    def score_prompt(self, row: int, scores: LogprobTensors) -> None:
        """Start to copy the log-probabilities of a row's targets."""
        self._prompt_scores[row] = scores.download(self.downloads)

    def pool(self, row: int, vector: torch.Tensor) -> None:
        """Start to copy the float32 vector of a row's sequence."""
        self._vectors[row] = self.downloads.start(vector)

    def result(self) -> StepResult:
        """Build the StepResult. Fields that no row needs are empty."""
        tokens = [-1] * len(self._rows)
        finite = [True] * len(self._rows)
        more: tuple[tuple[int, ...], ...] = ()
        if self._drawn is not None:
            drawn = self._drawn.numpy()
            if self._places is not None:
                drawn = drawn[:, self._places]
            if self._has_drafts:
                more = self._verified(drawn, tokens, finite)
            else:
                for row, token, flag in zip(self._sampled.tolist(), *drawn.tolist(), strict=True):
                    tokens[row] = token
                    finite[row] = bool(flag)
        prompts, pooled = self._prompt_logprobs(finite), self._pooled(finite)
        scores = self._logprobs(tokens)
        return StepResult(
            self._step_id, tuple(tokens), tuple(finite), scores, prompts, pooled, more
        )

    def _verified(
        self, drawn: NDArray[np.int64], tokens: list[int], finite: list[bool]
    ) -> tuple[tuple[int, ...], ...]:
        """Fill in the first token of each row, and return the further tokens that its accepted
        draft gives.
        """
        more: list[tuple[int, ...]] = [()] * len(self._rows)
        for number, row in enumerate(self._rows):
            first, last = np.searchsorted(self._sampled, [number, number + 1])
            if first == last:
                continue
            ids, flags = drawn[:, first:last].tolist()
            n_right = count_right(row, ids) if row.n_draft else 0
            tokens[number], *following = ids[: n_right + 1]
            more[number] = tuple(following)
            finite[number] = all(flags[: n_right + 1])
        return tuple(more)

    def _logprobs(self, tokens: list[int]) -> tuple[TokenLogprobs | None, ...]:
        if self._scores is None:
            return ()
        asking = np.flatnonzero(self._plan.logprobs != NO_LOGPROBS)
        rows = self._sampled[asking].tolist()
        counts = self._plan.logprobs[asking].tolist()
        found: list[TokenLogprobs | None] = [None] * len(self._rows)
        for row, entry in zip(
            rows, self._scores.tokens([tokens[row] for row in rows], counts), strict=True
        ):
            found[row] = entry
        return tuple(found)

    def _prompt_logprobs(self, finite: list[bool]) -> tuple[tuple[TokenLogprobs, ...] | None, ...]:
        """Log-probabilities of the targets by row. A row with NaN is marked as not finite."""
        if not self._prompt_scores:
            return ()
        found: list[tuple[TokenLogprobs, ...] | None] = [None] * len(self._rows)
        for row, scores in self._prompt_scores.items():
            targets = list(self._rows[row].targets)
            finite[row] &= not bool(scores.chosen.isnan().any())
            found[row] = tuple(scores.tokens(targets, [scores.top.shape[1]] * len(targets)))
        return tuple(found)

    def _pooled(self, finite: list[bool]) -> tuple[bytes | None, ...]:
        """Vectors by row as float32 little-endian bytes. A row that is not finite is marked."""
        if not self._vectors:
            return ()
        found: list[bytes | None] = [None] * len(self._rows)
        for row, tensor in self._vectors.items():
            vector = tensor.numpy()
            finite[row] &= bool(np.isfinite(vector).all())
            found[row] = vector.astype("<f4").tobytes()
        return tuple(found)
