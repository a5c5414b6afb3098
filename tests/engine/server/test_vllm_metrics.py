"""Metrics under vLLM's names: for whoever asks for them, with vLLM's types and labels."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.server.scripted import running, says
from yaie.core.messages import Stats
from yaie.server.metrics import EngineStatus, ServerMetrics
from yaie.server.monitoring.info import exposition
from yaie_api import metrics, vllm_metrics

CHAT = {"messages": [{"role": "user", "content": "hello"}]}


async def scraped(folder: Path, *, enabled: bool) -> str:
    async with running(folder, says("one two"), vllm_metrics=enabled) as app:
        stats = Stats(3, 2, 100, 40, 20, 50, 30, 7, 1, 9, step_seconds=0.5, step_budget_tokens=64)
        app.service.metrics = ServerMetrics(EngineStatus(lambda: stats, lambda: 0))
        assert (await app.post("/v1/chat/completions", CHAT)).status_code == 200
        return exposition(app.service, ()).decode()


async def test_they_are_off_unless_asked_for(tmp_path: Path) -> None:
    assert "vllm:" not in await scraped(tmp_path, enabled=False)


async def test_each_has_the_value_of_ours_and_the_labels_of_vllm(tmp_path: Path) -> None:
    text = await scraped(tmp_path, enabled=True)
    for line in (
        'vllm:num_requests_running{engine="0",model_name="stub"} 3.0',
        'vllm:num_requests_waiting{engine="0",model_name="stub"} 2.0',
        'vllm:kv_cache_usage_perc{engine="0",model_name="stub"} 0.4',
        'vllm:prefix_cache_queries_total{engine="0",model_name="stub"} 50.0',
        'vllm:prefix_cache_hits_total{engine="0",model_name="stub"} 30.0',
        'vllm:generation_tokens_total{engine="0",model_name="stub"} 7.0',
        'vllm:time_to_first_token_seconds_count{engine="0",model_name="stub"} 1.0',
        'vllm:request_prompt_tokens_count{engine="0",model_name="stub"} 1.0',
        'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0',
    ):
        assert line in text.splitlines(), line
    ended = r'vllm:request_success_total{engine="0",finished_reason="(\w+)",model_name="stub"} (.+)'
    counts = {reason: float(count) for reason, count in re.findall(ended, text)}
    assert counts == {"stop": 1, "length": 0, "abort": 0, "error": 0}


async def test_types_and_names_are_those_of_the_table(tmp_path: Path) -> None:
    text = await scraped(tmp_path, enabled=True)
    shown = {
        f"{one.name}_total" if one.type == "counter" else one.name: one.type
        for one in text_string_to_metric_families(text)
        if one.name.startswith("vllm:")
    }
    expected = {name: ours.kind for name, ours in vllm_metrics.SHOWN.items()}
    assert shown == expected | {vllm_metrics.CACHE_CONFIG.name: "gauge"}


async def test_outputs_that_end_with_tool_calls_count_as_stopped(tmp_path: Path) -> None:
    async with running(tmp_path, says("one"), vllm_metrics=True) as app:
        app.service.metrics.finished("tool_calls", 1.0)
        app.service.metrics.finished("stop", 1.0)
        text = exposition(app.service, ()).decode()
    sample = 'vllm:request_success_total{engine="0",finished_reason="stop",model_name="stub"} 2.0'
    assert sample in text.splitlines()


def test_a_name_is_shown_or_missing() -> None:
    assert not vllm_metrics.SHOWN.keys() & vllm_metrics.MISSING.keys()
    assert all(ours in metrics.every() for ours in vllm_metrics.SHOWN.values())


@pytest.mark.parametrize(
    "name", ["num_requests_waiting", "kv_cache_usage_perc", "cache_config_info"]
)
def test_what_the_gateway_s_endpoint_picker_reads_is_there(name: str) -> None:
    assert f"vllm:{name}" in {*vllm_metrics.SHOWN, vllm_metrics.CACHE_CONFIG.name}
