import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import aiohttp
import pytest

from fakes.fake_cluster import FakeCluster, inference_model
from yaie_api import names
from yaie_operator import manager
from yaie_operator.cluster import Object, RefusedError, WatchEvent
from yaie_operator.config import OperatorConfig
from yaie_operator.manager import Manager
from yaie_operator.monitoring.probes import serve
from yaie_operator.reconcile.observe import Ref

MODEL = Ref(names.KIND, "ns", "demo")
DEPLOYMENT = Ref("Deployment", "ns", "demo")
ROUTER = Ref("Deployment", "ns", names.ROUTER)
FAST = OperatorConfig(debounce_s=0.02, retry_base_s=0.01, retry_max_s=0.05, resync_s=30)


GENEROUS_S = 60.0
"""How long a test waits for what should come at once: a busy machine fails no test."""


async def until(holds: Callable[[], bool], timeout_s: float = GENEROUS_S) -> None:
    async with asyncio.timeout(timeout_s):
        while not holds():  # noqa: ASYNC110 - a test polls
            await asyncio.sleep(0.005)


class Running:
    def __init__(self, config: OperatorConfig, cluster: FakeCluster | None = None) -> None:
        self.cluster = cluster or FakeCluster()
        self.manager = Manager(self.cluster, config)
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(self.manager.run(self.stop))

    def reason(self) -> str:
        conditions = self.cluster.objects[MODEL].get("status", {}).get("conditions", ())
        return str(next((c["reason"] for c in conditions if c["type"] == "Ready"), ""))

    def metric(self, name: str, **labels: str) -> float:
        return self.manager.metrics.registry.get_sample_value(name, labels) or 0.0

    async def become_ready(self) -> None:
        self.cluster.put(inference_model())
        await until(lambda: {DEPLOYMENT, ROUTER} <= self.cluster.objects.keys())
        self.cluster.make_ready(DEPLOYMENT)
        self.cluster.make_ready(ROUTER)
        await until(lambda: self.reason() == "AllReady")

    async def quiet(self) -> list[tuple[str, str]]:
        """Writes within a fifth of a second."""
        await asyncio.sleep(0.1)
        self.cluster.writes.clear()
        await asyncio.sleep(0.2)
        return self.cluster.writes


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    made = Running(FAST)
    yield made
    made.stop.set()
    await asyncio.wait_for(made.task, GENEROUS_S)


async def test_events_alone_bring_a_model_from_nothing_to_ready(running: Running) -> None:
    await until(lambda: running.manager.synced)
    await running.become_ready()
    assert await running.quiet() == []


async def test_who_runs_tells_the_state_of_every_model_and_who_stopped_tells_none() -> None:
    running = Running(FAST)
    await running.become_ready()
    page = (await running.manager.metrics.render()).decode()
    demo = 'model="demo",namespace="ns"'
    assert (
        f'yaie_operator_model_condition{{condition="Ready",{demo},reason="AllReady"}} 1.0' in page
    )
    assert f'yaie_operator_model_replicas{{{demo},state="desired"}} 1.0' in page
    running.stop.set()
    await asyncio.wait_for(running.task, GENEROUS_S)
    page = (await running.manager.metrics.render()).decode()
    assert "yaie_operator_model_condition{" not in page
    assert "yaie_operator_models" in page


async def test_repeated_and_old_events_write_nothing(running: Running) -> None:
    await running.become_ready()
    await running.quiet()
    for obj in list(running.cluster.objects.values()):
        running.cluster.changes.put_nowait(WatchEvent("MODIFIED", obj))
    assert await running.quiet() == []


async def test_a_deleted_child_comes_back(running: Running) -> None:
    await running.become_ready()
    running.cluster.remove(Ref("Service", "ns", "demo"))
    await until(lambda: Ref("Service", "ns", "demo") in running.cluster.objects)


async def test_many_changes_of_a_namespace_are_planned_together() -> None:
    """However long the models' own looks take, their namespace is looked at once a debounce."""
    debounce_s = 0.5
    running = Running(replace(FAST, debounce_s=debounce_s))
    looks = partial(
        running.metric, "yaie_operator_reconciles_total", scope="namespace", result="ok"
    )
    began_s = time.monotonic()
    for number in range(20):
        running.cluster.put(inference_model(f"m{number}"))
    await until(lambda: Ref("Deployment", "ns", "m19") in running.cluster.objects and looks() > 0)
    await running.quiet()
    assert 1 <= looks() <= 1 + (time.monotonic() - began_s) / debounce_s
    running.stop.set()
    await asyncio.wait_for(running.task, GENEROUS_S)


async def test_a_fleet_that_is_as_it_should_be_is_looked_at_without_a_write(
    running: Running,
) -> None:
    for number in range(100):
        model = inference_model(f"m{number}")
        model["metadata"]["namespace"] = f"ns{number % 5}"
        running.cluster.put(model)
    await until(lambda: Ref("Deployment", "ns4", "m99") in running.cluster.objects)

    async def writes_of_a_full_look() -> list[tuple[str, str]]:
        done = {"scope": "model", "result": "ok"}
        before = running.metric("yaie_operator_reconciles_total", **done)
        running.cluster.writes.clear()
        await running.manager.resync()
        await until(
            lambda: running.metric("yaie_operator_reconciles_total", **done) >= before + 100
        )
        return list(running.cluster.writes)

    async with asyncio.timeout(GENEROUS_S):
        while await writes_of_a_full_look() or await running.quiet():
            pass  # the models' arrival is still being written
    assert await writes_of_a_full_look() == []
    assert running.metric("yaie_operator_models") == 100


async def test_nothing_is_reconciled_before_all_lists_are_in() -> None:
    """A child that is not listed yet would be taken for missing."""
    cluster = FakeCluster()
    cluster.put(inference_model())
    cluster.is_away = True
    running = Running(OperatorConfig(debounce_s=0.01, resync_s=0.1), cluster)
    running.manager.notify(WatchEvent("ADDED", cluster.objects[Ref(names.KIND, "ns", "demo")]))
    await asyncio.sleep(0.2)
    assert (
        running.metric("yaie_operator_reconciles_total", scope="model", result="unreachable") == 0
    )
    cluster.is_away = False
    await until(lambda: Ref("Deployment", "ns", "demo") in cluster.objects)
    running.stop.set()
    await running.task


async def test_a_lost_deletion_is_found_by_the_next_full_list() -> None:
    running = Running(OperatorConfig(debounce_s=0.01, resync_s=0.1))
    await running.become_ready()
    del running.cluster.objects[Ref("Service", "ns", "demo")]  # no event tells
    await until(lambda: Ref("Service", "ns", "demo") in running.cluster.objects)
    running.stop.set()
    await running.task


async def test_an_api_server_that_is_away_at_the_start_is_waited_for() -> None:
    cluster = FakeCluster()
    cluster.is_away = True
    waiting, stop = Manager(cluster, FAST), asyncio.Event()
    task = asyncio.create_task(waiting.run(stop))
    await asyncio.sleep(0.1)
    assert not waiting.synced
    cluster.is_away = False
    await until(lambda: waiting.synced)
    stop.set()
    await task


async def test_an_outage_delays_the_work_and_loses_none(running: Running) -> None:
    await running.become_ready()
    running.cluster.is_away = True
    running.cluster.put(inference_model(replicas=2))
    await until(
        lambda: running.metric(
            "yaie_operator_reconciles_total", scope="model", result="unreachable"
        ) >= 2
    )  # fmt: skip
    running.cluster.is_away = False
    await until(lambda: running.cluster.objects[DEPLOYMENT]["spec"]["replicas"] == 2)


async def test_a_defect_in_one_models_path_is_counted_and_stops_no_other(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = running.manager._reconciler.reconcile

    async def broken(key: str) -> float | None:
        if key == "model/ns/bad":
            raise ZeroDivisionError
        return await real(key)

    monkeypatch.setattr(running.manager._reconciler, "reconcile", broken)
    running.cluster.put(inference_model("bad"))
    await running.become_ready()
    assert running.metric("yaie_operator_reconciles_total", scope="model", result="error") >= 1
    assert "reconcile failed" in caplog.text


async def test_a_refused_read_is_retried_and_is_no_defect(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A role that was narrowed is told in a line; a traceback would look like a bug."""
    real = running.manager._reconciler.reconcile
    given = False

    async def without_rights(key: str) -> float | None:
        if not given:
            raise RefusedError('secrets "yaie-router-keys" is forbidden')
        return await real(key)

    monkeypatch.setattr(running.manager._reconciler, "reconcile", without_rights)
    running.cluster.put(inference_model("demo"))
    await until(lambda: "read refused" in caplog.text)
    given = True
    await running.become_ready()
    assert "Traceback" not in caplog.text


class SlowEvents(FakeCluster):
    """Its API server takes an Event only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let = asyncio.Event(), asyncio.Event()

    async def emit(
        self, about: Object, *, severity: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        self.asked.set()
        await self.let.wait()
        await super().emit(about, severity=severity, reason=reason, message=message)


async def test_all_events_of_a_status_that_is_written_are_told_before_the_end() -> None:
    cluster = SlowEvents()
    running = Running(FAST, cluster)
    await running.become_ready()
    await cluster.asked.wait()
    running.stop.set()
    await asyncio.sleep(0.05)
    assert not running.task.done()
    cluster.let.set()
    await asyncio.wait_for(running.task, GENEROUS_S)
    told = {message.partition("=")[0] for _, _, message in cluster.events}
    assert {"EnginesReady", "Ready"} <= told


async def test_an_end_waits_for_an_api_server_that_does_not_answer_no_longer_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manager, "FINISH_S", 0.1)
    cluster = SlowEvents()
    running = Running(FAST, cluster)
    await running.become_ready()
    await cluster.asked.wait()
    running.stop.set()
    await asyncio.wait_for(running.task, GENEROUS_S)
    assert cluster.events == []


async def test_who_takes_over_tells_no_event_again() -> None:
    cluster = FakeCluster()
    first = Running(FAST, cluster)
    await first.become_ready()
    assert await first.quiet() == []
    first.stop.set()
    await first.task
    told = list(cluster.events)
    second = Running(FAST, cluster)
    ok = {"scope": "model", "result": "ok"}
    await until(lambda: second.metric("yaie_operator_reconciles_total", **ok) >= 1)
    assert await second.quiet() == []
    assert cluster.events == told != []
    second.stop.set()
    await second.task


async def test_metrics_and_probes_are_served() -> None:
    served, ready = Manager(FakeCluster(), FAST), [False]
    serving = serve(served.metrics, host="127.0.0.1", port=0, is_ready=lambda: ready[0])
    async with serving as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        assert (await client.get("/livez")).status == 200
        assert (await client.get("/readyz")).status == 503
        ready[0] = True
        assert (await client.get("/readyz")).status == 200
        text = await (await client.get("/metrics")).text()
        assert "yaie_operator_queue_depth 0.0" in text
        assert "yaie_operator_models 0.0" in text
