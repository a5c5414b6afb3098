"""When traces are exported, and what is refused in one sentence."""

import importlib.util

import pytest

from yaie_api.tracing import settings
from yaie_api.tracing.settings import Tracing, tracing_of

URL = "http://collector:4318"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_missing", lambda: None)


@pytest.mark.parametrize(
    ("flag", "env", "expected"),
    [
        (None, {}, None),
        (URL, {}, Tracing(URL + "/v1/traces")),
        (URL + "/", {}, Tracing(URL + "/v1/traces")),
        (URL + "/team/traces", {}, Tracing(URL + "/team/traces")),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": URL}, Tracing()),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": URL}, Tracing()),
        (None, {"OTEL_TRACES_EXPORTER": "otlp"}, Tracing()),
        (URL, {"OTEL_TRACES_EXPORTER": "none"}, None),
        (URL, {"OTEL_SDK_DISABLED": "true"}, None),
        (None, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, None),
    ],
)
def test_a_flag_or_a_standard_variable_turns_traces_on(
    flag: str | None, env: dict[str, str], expected: Tracing | None
) -> None:
    assert tracing_of(flag, env) == expected


@pytest.mark.parametrize(
    ("flag", "env", "told"),
    [
        ("grpc://collector:4317", {}, "such as http://collector:4318"),
        ("collector:4318", {}, "such as http://collector:4318"),
        (URL, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "not by grpc"),
        (URL, {"OTEL_TRACES_EXPORTER": "console"}, "by otlp or none"),
        (URL, {"OTEL_BSP_MAX_QUEUE_SIZE": "many"}, "a number of at least 1"),
        (URL, {"OTEL_BSP_MAX_QUEUE_SIZE": "100"}, "BATCH_SIZE is 512: .*QUEUE_SIZE must be"),
    ],
)
def test_what_is_not_offered_is_refused(flag: str, env: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        tracing_of(flag, env)


def test_without_the_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install -e \"\.\[otel\]\""):
        tracing_of(URL, {})
