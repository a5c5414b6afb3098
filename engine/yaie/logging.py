"""Logging of the engine's processes: the common format, and fewer messages of libraries.

Prompts and outputs are logged only by the logger `yaie.prompts`, and only with `--log-prompts`.
"""

import logging
from typing import Final

from yaie_api import logs

_QUIET: Final = ("asyncio", "uvicorn", "httpcore", "httpx", "httpx2", "huggingface_hub", "urllib3")
"""Libraries whose info messages are noise, or contain signed URLs; only warnings are logged."""


def setup(level: str = "info", log_format: logs.LogFormat = "auto") -> None:
    """Configure the logging of this process; see `yaie_api.logs.configure`."""
    logs.configure(level=level, log_format=log_format)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
