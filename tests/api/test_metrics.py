"""The table of metrics is complete and regular, and each process exports its part of it."""

import asyncio
import re
from collections.abc import Iterable

import pytest
from prometheus_client.metrics_core import Metric as Family

from fakes.fake_cluster import inference_model
from yaie.config import ModelInfo
from yaie.core.messages import Stats
from yaie.server.metrics import EngineStatus, ServerMetrics
from yaie_api import metrics
from yaie_api.metrics import Exporter, Metric
from yaie_operator.monitoring.metrics import Metrics as OperatorMetrics
from yaie_operator.monitoring.metrics import Statuses
from yaie_router.discovery.objects import Model
from yaie_router.metrics import Metrics as RouterMetrics

STATUS = {
    "conditions": [{"type": "Ready", "status": "False", "reason": "Starting"}],
    "replicas": {"desired": 2, "ready": 1},
}


@pytest.mark.parametrize("metric", metrics.every(), ids=lambda one: one.name)
def test_a_metric_follows_the_naming_rules(metric: Metric) -> None:
    assert re.fullmatch(r"yaie_(engine|router|operator)_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert metric.help.endswith(".")
    assert metric.unit or metric.kind != "histogram"


def test_no_name_is_given_twice() -> None:
    assert len({one.name for one in metrics.every()}) == len(metrics.every())


def test_the_unit_is_in_the_name() -> None:
    assert metrics.ENGINE_STEP_SECONDS.unit == "seconds"
    assert metrics.ENGINE_KV_PAGES_FREE.unit == "pages"
    assert metrics.ENGINE_STEPS.unit == ""


@pytest.mark.parametrize("exporter", ["engine", "router", "operator"])
def test_a_process_exports_its_part_of_the_table_and_nothing_else(exporter: Exporter) -> None:
    declared = {one.name: one for one in metrics.every() if one.exporter == exporter}
    exported = {
        f"{one.name}_total" if one.type == "counter" else one.name: one
        for one in families(exporter)
    }
    assert exported.keys() == declared.keys()
    for name, family in exported.items():
        assert family.type == declared[name].kind
        assert family.documentation == declared[name].help
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(declared[name].labels)


INFO = ModelInfo(
    served_model_name="demo", path="", architecture="", parameters=10, weight_bytes=20,
    max_model_len=100, vocab_size=8, eos_token_ids=(), kv_pages=5, page_size=16, device="cpu",
    dtype="float32",
)  # fmt: skip


def test_the_engine_tells_its_sizes_without_the_scratch_page() -> None:
    status = EngineStatus(lambda: None, lambda: 0, lambda: INFO)
    told = {family.name: family.samples[0].value for family in status.collect()}
    assert told["yaie_engine_kv_tokens"] == 64
    assert told["yaie_engine_context_tokens"] == 100
    assert (told["yaie_engine_model_parameters"], told["yaie_engine_weight_bytes"]) == (10, 20)


def families(exporter: Exporter) -> Iterable[Family]:
    """What a process exports that has done nothing yet."""
    if exporter == "router":
        return RouterMetrics(lambda: 0.0).registry.collect()
    if exporter == "operator":
        statuses = Statuses(({**inference_model(), "status": STATUS},))
        return [*OperatorMetrics().registry.collect(), *statuses.collect()]
    stats = Stats(*[0] * 10, step_seconds=0.0, step_budget_tokens=0)
    status = EngineStatus(lambda: stats, lambda: 0, lambda: INFO)
    return [*ServerMetrics().registry.collect(), *status.collect()]


def test_failures_are_counted_from_0_on_as_prometheus_sees_no_increase_to_a_first_value() -> None:
    router = RouterMetrics(lambda: 0.0).render([Model("demo", "demo")], {}, {}).decode()
    for cause in ("connect", "5xx", "disconnect", "timeout", "busy", "lost"):
        assert f'yaie_router_retries_total{{cause="{cause}",model="demo"}} 0.0' in router
    assert 'yaie_router_broken_streams_total{model="demo"} 0.0' in router
    assert 'yaie_router_ejections_total{model="demo",reason="timeout"} 0.0' in router
    operator = asyncio.run(OperatorMetrics().render()).decode()
    assert 'yaie_operator_reconciles_total{result="error",scope="model"} 0.0' in operator


def test_conditions_and_replicas_are_read_from_the_status() -> None:
    operator = OperatorMetrics()
    operator.shown_models = lambda: [{**inference_model(), "status": STATUS}]
    page = asyncio.run(operator.render()).decode()
    who = 'model="demo",namespace="ns"'
    ready = f'condition="Ready",{who},reason="Starting"'
    assert f"yaie_operator_model_condition{{{ready}}} 0.0" in page
    assert f'yaie_operator_model_replicas{{{who},state="desired"}} 2.0' in page
