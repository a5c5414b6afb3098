"""What an engine process says when it ends by itself."""

import gc
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from yaie.checkpoint import source
from yaie.ipc.channel import Failed, Ready
from yaie.runtime.process import engine_process
from yaie.runtime.process.engine_process import LoopProgress, serve
from yaie.runtime.startup import factory
from yaie_api.engine_config import EngineConfig
from yaie_api.errors import InvalidRequestError


def said(load: Any) -> tuple[int, list[Any]]:
    """The exit status, and what was sent to the HTTP process."""
    sent: list[Any] = []
    port: Any = SimpleNamespace(send=sent.append)
    config = EngineConfig(model="builtin://yaie-demo")
    status = serve(config, port, threading.Event(), LoopProgress(), load)
    gc.unfreeze()  # what the process has frozen for good lives in this one with the other tests
    return status, sent


class Engine:
    """Serves until its device is lost."""

    info = "the model"

    def loop(self, port: Any) -> Any:
        return self

    def run(self, stop: threading.Event) -> None:
        raise RuntimeError("the device is lost\nCompile with TORCH_USE_CUDA_DSA.")


def test_a_loop_that_fails_says_so_in_one_line() -> None:
    status, sent = said(lambda config, report: Engine())
    assert status == 1
    assert sent == [Ready("the model"), Failed("RuntimeError: the device is lost")]  # type: ignore[arg-type]  # only carried


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (InvalidRequestError("There is no model folder."), "There is no model folder."),
        (ValueError("x"), "The engine cannot start: ValueError: x"),
        (
            ModuleNotFoundError("no torch", name="torch"),
            (
                "The engine needs the Python package torch, which is not installed. In the folder "
                'of the project run: pip install -e ".[engine]"'
            ),
        ),
    ],
)
def test_a_model_that_cannot_be_loaded_is_told_in_words(error: Exception, told: str) -> None:
    def load(config: EngineConfig, report: Any) -> Any:
        raise error

    assert said(load) == (1, [Failed(told)])


def test_what_is_loaded_is_what_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch of the hub may move between the two, and each look takes a round trip."""
    asked: list[str] = []
    demo = str(source.BUILTIN / "yaie-demo")
    resolve = source.resolve

    def resolved(model: str, *rest: Any, **more: Any) -> Path:
        asked.append(model)
        return resolve(demo if model.startswith("hf:") else model, **more)

    monkeypatch.setattr(source, "resolve", resolved)
    created: list[EngineConfig] = []
    monkeypatch.setattr(factory, "create", lambda config, *_, **__: created.append(config))
    config = EngineConfig(model="hf://org/name@main", device="cpu")
    engine_process.load_model(config, lambda _: None)
    assert asked == ["hf://org/name@main"]
    (found,) = created
    assert (found.model, found.revision, found.tokenizer) == (demo, None, demo)
    assert found.served_model_name == "name"
