"""The engine process: `python -m yaie.runtime.process.engine_process --address … --config JSON`.

The HTTP process starts it. It loads the model, sends `Ready`, and runs the loop until its standard
input closes: the HTTP process closes it to stop this process, and the kernel closes it if the HTTP
process ends in any other way. An error of the start or of the loop is sent as `Failed`, with its
message.
"""

import argparse
import gc
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from yaie.checkpoint import source, tokenizer_files
from yaie.checkpoint.download.progress import Downloaded, Teller
from yaie.config import ModelInfo
from yaie.extras import is_foreign, missing
from yaie.ipc.channel import EnginePort, Failed, Loading, Located, Ready
from yaie.logging import setup
from yaie.runtime import phases
from yaie.runtime.loop.engine_loop import EngineLoop, Port
from yaie.runtime.process.parent import end_with_parent
from yaie.runtime.process.watchdog import Watchdog
from yaie.runtime.startup import preflight
from yaie_api import garbage
from yaie_api.engine_config import EngineConfig
from yaie_api.errors import YaieError

log = logging.getLogger(__name__)


class LoadedEngine(Protocol):
    """The loaded engine as this process uses it: `yaie.runtime.startup.factory.Engine`."""

    @property
    def info(self) -> ModelInfo: ...

    def loop(self, port: Port) -> EngineLoop[Any]:
        """Create the loop that serves the commands of `port`."""


Report = Callable[[Loading | Located], None]
Load = Callable[[EngineConfig, Report], LoadedEngine]
"""Builds the engine of a configuration; reports its progress to its second argument."""


def main(argv: Sequence[str] | None = None, load: Load | None = None) -> int:
    """Run one engine. Returns the exit status: 0 when asked to stop, 1 when it failed."""
    args = _parser().parse_args(argv)
    gc.disable()  # what loading makes stays: looking for garbage in it takes a sixth of the imports
    setup(args.log_level, args.log_format)
    stop = threading.Event()
    end_with_parent(stop)
    config = msgspec.json.decode(args.config, type=EngineConfig)
    pulse = LoopProgress()
    watchdog = Watchdog(args.address, pulse.age_s, pulse.expected_s)
    port = EnginePort(args.address)
    watchdog.start()
    try:
        return serve(config, port, stop, pulse, load or load_model)
    finally:
        watchdog.stop()
        port.close()


def serve(
    config: EngineConfig,
    port: EnginePort,
    stop: threading.Event,
    pulse: "LoopProgress",
    load: Load,
) -> int:
    """Load the model and run the loop until `stop` is set. Returns the exit status."""
    try:
        engine = load(config, port.send)
        loop = engine.loop(port)
    except YaieError as error:
        port.send(Failed(error.message))
        return 1
    except ModuleNotFoundError as error:
        if not is_foreign(error):
            raise
        port.send(Failed(missing("The engine", error, "engine")))
        return 1
    except Exception as error:
        log.exception("engine cannot start")
        port.send(Failed(f"The engine cannot start: {type(error).__name__}: {error}"))
        return 1
    # Loaded objects stay: the garbage collector should not scan them again during a step.
    garbage.freeze()
    gc.enable()
    pulse.loop = loop
    port.send(Ready(engine.info))
    try:
        loop.run(stop)
    except Exception as error:
        log.critical("engine failed", exc_info=True)
        first_line = str(error).partition("\n")[0]  # CUDA adds advice in more of them
        port.send(Failed(f"{type(error).__name__}: {first_line}"))
        return 1
    return 0


class LoopProgress:
    """Progress of the loop for the watchdog; it can be read before the loop exists."""

    def __init__(self) -> None:
        self.loop: EngineLoop[Any] | None = None

    def age_s(self) -> float:
        return self.loop.last_step_age_s() if self.loop is not None else 0.0

    def expected_s(self) -> float | None:
        return self.loop.expected_step_s() if self.loop is not None else None


def load_model(config: EngineConfig, report: Report) -> LoadedEngine:
    """Load the model that the configuration names, and report each stage when it begins.

    Raises:
        InvalidRequestError: the model does not exist or is refused, or a setting does not fit it.

    """
    report(Loading("model folder"))
    located = check(config, report)
    report(located)
    report(Loading("imports"))  # torch, which takes seconds
    import torch

    from yaie.runtime.startup import factory

    if torch.cuda.is_available() and config.device != "cpu":
        phases.declare_compilations()
    found = pinned(config, located)
    return factory.create(found, lambda stage: report(Loading(stage)), put_off=True)


def pinned(config: EngineConfig, located: Located) -> EngineConfig:
    """The configuration with the folders that were checked: a branch of the hub may have moved on
    since, and to ask again takes as long again.
    """
    return msgspec.structs.replace(
        config,
        model=located.path,
        revision=None,
        tokenizer=located.tokenizer_path,
        served_model_name=config.served_model_name or source.default_served_name(config.model),
    )


def check(config: EngineConfig, report: Report = lambda _: None) -> Located:
    """Find a model, or refuse it before the import of torch, which takes seconds. Reports how far
    the download of a model is.

    Raises:
        InvalidRequestError: there is no such model, its configuration, weights or tokenizer are
            refused, or it cannot fit.

    """
    with_weights = config.load_format != "dummy"
    settings, told = preflight.Settings(config), Teller()

    def tell(state: Downloaded) -> None:
        told(state)
        report(Loading("download", str(state)))

    try:
        folder = source.resolve(
            config.model,
            config.revision,
            with_weights=with_weights,
            check=settings.check,
            report=tell,
        )
    finally:
        told.end()
    if with_weights:
        source.weight_paths(folder)
        if preflight.is_for_cpu(config):
            memory = preflight.host_memory(config.dtype)
            preflight.check_memory(config, folder, settings.shape, memory)
    return Located(str(folder), str(tokenizer_files.folder_of(folder, config.tokenizer)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m yaie.runtime.process.engine_process")
    parser.add_argument(
        "--address", required=True, help="ipc address of the HTTP process; of several, with commas"
    )
    parser.add_argument("--config", required=True, help="EngineConfig as JSON")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-format", default="auto", choices=("auto", "text", "json"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
