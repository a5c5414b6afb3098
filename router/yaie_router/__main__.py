"""`python -m yaie_router`: see --help."""

import asyncio
import os
import sys

from yaie_router.config import Config, parse


def main() -> None:
    """Read the settings and serve until SIGTERM or SIGINT."""
    config = parse(sys.argv[1:], os.environ)

    import uvloop  # imported late, so that --help stays quick

    from yaie_api import logs

    logs.configure(level=config.log_level, log_format=config.log_format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_main(config))
    except* OSError as group:  # the address is taken, the inherited socket is none, …
        sys.exit("yaie-router: " + "; ".join(str(error) for error in group.exceptions))


async def _main(config: Config) -> None:
    from yaie_api import garbage
    from yaie_router.run import Signals, run

    signals = Signals()
    signals.install()
    garbage.freeze()
    await run(config, signals)


if __name__ == "__main__":
    main()
