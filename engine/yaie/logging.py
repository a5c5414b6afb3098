"""Logging of the engine's processes: the shared format, and quiet libraries.

Prompts and outputs go to the logger `yaie.prompts` only, and only with `--log-prompts`.
"""

import logging
from typing import Final

from yaie_api import logs

_QUIET: Final = ("asyncio", "uvicorn", "httpcore", "httpx", "httpx2", "huggingface_hub", "urllib3")
"""Libraries whose information is noise between ours, or holds signed addresses; warnings stay."""


def setup(level: str = "info", log_format: logs.LogFormat = "auto") -> None:
    """Configure this process's logs. See `yaie_api.logs.configure`."""
    logs.configure(level=level, log_format=log_format)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
