"""Figures of pods become samples; rates and percentiles survive restarts of processes."""

from math import inf

import pytest

from yaie_api import metrics
from yaie_operator.autoscaling.exposition import (
    EngineFigures,
    ExpositionError,
    RouterFigures,
    quantile,
    read_engine,
    read_router,
)
from yaie_operator.autoscaling.signals import Tracks, look

ROUTER_PAGE = """\
# HELP yaie_router_requests_in_flight Requests being served now.
# TYPE yaie_router_requests_in_flight gauge
yaie_router_requests_in_flight{model="demo"} 3.0
yaie_router_requests_in_flight{model="other"} 8.0
yaie_router_pending_requests{model="demo"} 2.0
# TYPE yaie_router_requests_total counter
yaie_router_requests_total{model="demo",route="/v1/chat/completions",status="200"} 5.0
yaie_router_requests_total{model="demo",route="/v1/chat/completions",status="503"} 2.0
yaie_router_requests_total{model="",route="probe",status="200"} 900.0
yaie_router_requests_created{model="demo",route="x",status="200"} 1.7e9
"""
ENGINE_PAGE = """\
yaie_engine_running_requests 4.0
yaie_engine_waiting_requests 1.0
yaie_engine_kv_utilization_ratio 0.25
yaie_engine_time_to_first_token_seconds_bucket{le="0.5"} 8.0
yaie_engine_time_to_first_token_seconds_bucket{le="1.0"} 10.0
yaie_engine_time_to_first_token_seconds_bucket{le="+Inf"} 10.0
"""


def engine(count: float = 0, waiting: float = 0, slow: float = 0) -> EngineFigures:
    fast = count - slow
    return EngineFigures(0.0, waiting, 0.5, ((0.5, fast), (5.0, count), (inf, count)))


def test_a_router_page_is_read_by_model() -> None:
    figures = read_router(ROUTER_PAGE)
    assert figures.in_flight == {"demo": 3.0, "other": 8.0}
    assert figures.pending == {"demo": 2.0}
    assert figures.requests["demo"] == 7.0


def test_an_engine_page_is_read() -> None:
    figures = read_engine(ENGINE_PAGE)
    assert (figures.running, figures.waiting, figures.kv_utilization) == (4.0, 1.0, 0.25)
    assert figures.ttft == ((0.5, 8.0), (1.0, 10.0), (inf, 10.0))


@pytest.mark.parametrize(
    "page", ["", "<html>", "yaie_engine_running_requests", "yaie_engine_running_requests NaN"]
)
def test_what_is_no_engine_page_is_refused(page: str) -> None:
    with pytest.raises(ExpositionError):
        read_engine(page)


def test_percentiles_are_prometheus_own() -> None:
    assert quantile({}, 0.95) == 0.0
    assert quantile({0.5: 0.0, inf: 0.0}, 0.95) == 0.0
    assert quantile({1.0: 90.0, 2.0: 100.0, inf: 100.0}, 0.95) == pytest.approx(1.5)
    assert quantile({1.0: 1.0, inf: 100.0}, 0.95) == 1.0


def test_sums_are_over_all_pods_and_waiting_requests_are_active() -> None:
    routers = {"r-1": RouterFigures({"demo": 3.0}, {"demo": 1.0}), "r-2": RouterFigures()}
    sample, _ = look("demo", Tracks(), 0.0, routers, {"e-1": engine(), "e-2": engine()})
    assert (sample.active, sample.pending, sample.kv_used) == (3.0, 1.0, 1.0)
    assert sample.complete


def test_generations_that_no_router_sent_are_active_too() -> None:
    busy = EngineFigures(running=4.0, waiting=1.0)
    sample, _ = look("demo", Tracks(), 0.0, {"r": RouterFigures()}, {"e": busy})
    assert sample.active == 5.0


@pytest.mark.parametrize(
    ("routers", "engines"),
    [({}, {}), ({"r": None}, {}), ({"r": RouterFigures()}, {"e": None})],
)
def test_a_pod_that_does_not_answer_makes_the_sample_incomplete(
    routers: dict[str, RouterFigures | None], engines: dict[str, EngineFigures | None]
) -> None:
    assert not look("demo", Tracks(), 0.0, routers, engines)[0].complete


def test_arrivals_need_two_looks_and_survive_a_restart_of_the_router() -> None:
    counts, tracks = [], Tracks()
    for now, total in enumerate((100.0, 104.0, 3.0)):
        routers = {"r": RouterFigures(requests={"demo": total})}
        sample, tracks = look("demo", tracks, float(now), routers, {})
        counts.append(sample.arrivals)
    assert counts == [0.0, 4.0, 3.0]


def test_a_router_that_misses_a_look_loses_no_arrival() -> None:
    tracks = Tracks()
    for now, total in enumerate((100.0, None, 104.0)):
        figures = None if total is None else RouterFigures(requests={"demo": total})
        sample, tracks = look("demo", tracks, float(now), {"r": figures}, {})
    assert sample.arrivals == 4.0


def test_ttft_is_of_the_last_minute_only() -> None:
    tracks = Tracks()
    for now, figures in ((0.0, engine(50, slow=50)), (30.0, engine(60, slow=50))):
        sample, tracks = look("demo", tracks, now, {"r": RouterFigures()}, {"e": figures})
    assert sample.ttft_p95_s <= 0.5
    sample, tracks = look("demo", tracks, 31.0, {"r": RouterFigures()}, {"e": engine(80, slow=70)})
    assert sample.ttft_p95_s > 0.5
    sample, _ = look("demo", tracks, 32.0, {"r": RouterFigures()}, {"e": engine(10)})
    assert 0 < sample.ttft_p95_s <= 0.5, "the engine restarted: all of its counts are new"


def test_a_queue_counts_when_it_stands() -> None:
    tracks, told = Tracks(), []
    for second in range(0, 22, 2):
        waiting = 0.0 if second < 10 else 20.0
        sample, tracks = look(
            "demo",
            tracks,
            float(second),
            {"r": RouterFigures()},
            {"e": engine(count=second * 4.0, waiting=waiting)},
        )
        told.append(sample.queue_s)
    assert told[5:7] == [0.0, 0.0], "requests of this moment are no queue"
    assert told[-1] == pytest.approx(20 / 4.0)


def test_the_names_are_those_that_routers_and_engines_export() -> None:
    for name in (metrics.ROUTER_PENDING.name, metrics.ROUTER_IN_FLIGHT.name):
        assert name in ROUTER_PAGE
    for name in (metrics.ENGINE_RUNNING.name, metrics.ENGINE_TTFT.name):
        assert name in ENGINE_PAGE


def test_a_router_that_reaches_no_engine_is_not_one_that_does_not_say() -> None:
    comment = "# TYPE yaie_router_engine_reached gauge\n"
    sample = 'yaie_router_engine_reached{model="m",engine="pod-1"} 1.0\n'
    assert read_router("").reached is None
    assert read_router(comment).reached == frozenset()
    assert read_router(comment + sample).reached == {"pod-1"}
