import pytest

from yaie.server.engine.client import EngineState
from yaie.server.monitoring.health import LIVE_SILENCE_S, READY_SILENCE_S, liveness, readiness

S = EngineState


@pytest.mark.parametrize(
    ("state", "silence_s", "live"),
    [
        (S.LOADING, 1e6, True),
        (S.RESTARTING, 1e6, True),
        (S.READY, 0.0, True),
        (S.READY, LIVE_SILENCE_S + 1, False),
        (S.FAILED, 0.0, False),
        (S.STOPPED, 0.0, False),
    ],
)
def test_liveness_depends_on_the_engine_s_sign_of_life(
    state: EngineState, silence_s: float, live: bool
) -> None:
    assert liveness(state, silence_s).ok is live


@pytest.mark.parametrize(
    ("state", "silence_s", "draining", "loaded", "reason"),
    [
        (S.READY, 0.0, False, True, "ready"),
        (S.READY, 0.0, True, True, "draining"),
        (S.READY, READY_SILENCE_S + 1, False, True, "engine silent"),
        (S.READY, 0.0, False, False, "ready"),
        (S.LOADING, 0.0, False, False, "loading"),
        (S.RESTARTING, 0.0, False, True, "restarting"),
        (S.FAILED, 0.0, False, True, "failed"),
    ],
)
def test_readiness_names_its_reason(
    state: EngineState, silence_s: float, draining: bool, loaded: bool, reason: str
) -> None:
    verdict = readiness(state, silence_s, draining=draining, loaded=loaded)
    assert verdict.reason == reason
    assert verdict.ok is (state is S.READY and loaded and not draining and silence_s == 0.0)
