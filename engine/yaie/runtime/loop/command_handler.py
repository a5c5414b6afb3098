"""Turns commands into requests of the scheduler. Each command is answered, at once or when its
grammar is compiled. This module knows nothing about steps.
"""

from collections.abc import Callable, Iterable

from yaie.core.matcher import Matcher
from yaie.core.messages import (
    Abort,
    Accepted,
    Command,
    Event,
    Generate,
    TiePrefixKeys,
    WatchPrefixes,
)
from yaie.core.outputs import CLOSING, DEADLINE, Failure, unstarted
from yaie.core.scheduler.scheduler import Scheduler
from yaie.core.scheduler.validation import duplicate, rejection
from yaie.runtime.grammar.pending import Compiling, GrammarBackend, PendingRequest
from yaie_api.errors import YaieError


class CommandHandler:
    """Owns the requests whose grammar is being compiled. Its methods return the events for users,
    in order.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        grammars: GrammarBackend | None,
        watch_prefixes: Callable[[], None],
    ) -> None:
        self._scheduler = scheduler
        self._compiling = Compiling(grammars)
        self._watch_prefixes = watch_prefixes

    @property
    def n_compiling(self) -> int:
        """Number of requests that wait for their grammar."""
        return len(self._compiling)

    def obey(self, commands: Iterable[Command], now: float) -> list[Event]:
        """Process the commands that arrived by `now`, the compiled grammars, and the deadlines that
        have passed.
        """
        events: list[Event] = []
        for command in commands:
            if isinstance(command, Generate):
                events += self._receive(command, now)
            elif isinstance(command, Abort):
                events += self._abort(command)
            elif isinstance(command, TiePrefixKeys):
                self._scheduler.tie(command)
            elif isinstance(command, WatchPrefixes):
                self._watch_prefixes()
            else:
                self._scheduler.reset_prefix_cache()
                events.append(Accepted(command.request_id))
        if self._compiling.has_work:
            events += self._take(now)
        events += self._scheduler.expire(now)
        return events

    def close(self) -> list[Event]:
        """End the requests whose grammar is being compiled, because the engine stops."""
        return _withdrawn(self._compiling.clear(), CLOSING)

    def _receive(self, request: Generate, now: float) -> list[Event]:
        """Queue a request, or have its grammar compiled first.

        A request that would be refused anyway is refused before the compilation.
        """
        scheduler, compiling = self._scheduler, self._compiling
        try:
            if request.request_id in compiling:
                raise duplicate(request.request_id)
            if request.sampling.grammar is None or request.pooling is not None:
                return [scheduler.add(request, arrived_s=now, compiling=len(compiling))]
            scheduler.validate(request, compiling=len(compiling))
            compiling.submit(request, now, scheduler.deadline_s(request, now))
        except YaieError as error:
            return [rejection(request.request_id, error)]
        return []

    def _take(self, now: float) -> list[Event]:
        events: list[Event] = []
        for pending, outcome in self._compiling.take():
            events += self._compiled(pending, outcome)
        events += _withdrawn(self._compiling.expire(now), DEADLINE)
        return events

    def _compiled(self, pending: PendingRequest, outcome: Matcher | YaieError) -> list[Event]:
        request = pending.request
        if isinstance(outcome, YaieError):
            return [rejection(request.request_id, outcome)]
        answer = self._scheduler.add(request, outcome, arrived_s=pending.arrived_s)
        events: list[Event] = [answer]
        if isinstance(answer, Accepted):
            for abort in pending.aborts:
                events += self._abort(abort)
        return events

    def _abort(self, abort: Abort) -> list[Event]:
        if abort.request_id not in self._compiling:
            return list(self._scheduler.abort(abort.request_id, abort.index))
        request = self._compiling.abort(abort)
        return [] if request is None else _gone(request, None)


def _withdrawn(requests: list[Generate], failure: Failure) -> list[Event]:
    return [event for request in requests for event in _gone(request, failure)]


def _gone(request: Generate, failure: Failure | None) -> list[Event]:
    """The events of a request that ends while its grammar is compiled. `failure` None: it was
    aborted.
    """
    return [Accepted(request.request_id), *unstarted(request, failure)]
