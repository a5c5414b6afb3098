"""The engine process: `python -m yaie.runtime.process --address ipc://… --config JSON`.

Started by the HTTP process. Loads the model, says `Ready`, and runs the loop until its standard
input closes: the HTTP process closes it to end this one, and is gone otherwise, however it ended.
Whatever stops the start is told in words as `Failed`.
"""

import argparse
import gc
import logging
import sys
import threading
from collections.abc import Sequence

import msgspec

from yaie.config import EngineConfig
from yaie.logging import setup
from yaie.models import config as model_config
from yaie.models import source
from yaie.runtime.parent import end_with_parent
from yaie.server.ipc import EnginePort, Failed, Loading, Ready
from yaie_api.errors import YaieError

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one engine. Returns the exit status: 0 when asked to stop, 1 when it failed."""
    args = _parser().parse_args(argv)
    setup(args.log_level, args.log_format)
    stop = threading.Event()
    end_with_parent(stop)
    port = EnginePort(args.address)
    try:
        config = msgspec.json.decode(args.config, type=EngineConfig)
        return serve(config, port, stop)
    finally:
        port.close()


def serve(config: EngineConfig, port: EnginePort, stop: threading.Event) -> int:
    """Load the model and run the loop until `stop` is set."""
    try:
        port.send(Loading("model folder"))
        check(config)
        port.send(Loading("imports"))
        from yaie.runtime import factory

        port.send(Loading("weights"))
        engine = factory.create(config)
    except YaieError as error:
        port.send(Failed(error.message))
        return 1
    except Exception as error:
        log.exception("engine cannot start")
        port.send(Failed(f"The engine cannot start: {type(error).__name__}: {error}"))
        return 1
    # What loading has made stays: the collector need not look at it again in the middle of a step.
    gc.collect()
    gc.freeze()
    port.send(Ready(engine.info))
    try:
        engine.loop(port).run(stop)
    except Exception:
        log.critical("engine failed", exc_info=True)
        return 1
    return 0


def check(config: EngineConfig) -> None:
    """Refuse a model that cannot be loaded before torch is imported: seconds sooner, and safely.

    Raises:
        InvalidRequestError: no such model, or one with code or pickled weights.

    """
    with_weights = config.load_format != "dummy"
    folder = source.resolve(config.model, config.revision, with_weights=with_weights)
    model_config.parse(source.read_config(folder))
    if with_weights:
        source.refuse_pickled_weights(folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m yaie.runtime.process")
    parser.add_argument("--address", required=True, help="ipc address of the HTTP process")
    parser.add_argument("--config", required=True, help="EngineConfig as JSON")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-format", default="auto", choices=("auto", "text", "json"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
