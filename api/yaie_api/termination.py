"""The termination message: the sentence with which a container's process says why it ended.

The kubelet reads it from a file, and it becomes `terminated.message` of the pod's status, so nobody
has to look for it in a log. Uses the standard library only.
"""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from yaie_api.logs import fields
from yaie_api.names import ENV_TERMINATION_LOG

log = logging.getLogger(__name__)

MAX_LENGTH: Final = 1000
"""In characters: Kubernetes keeps 4096 bytes, and a condition has to hold the sentence too."""


def leave(sentence: str, environ: Mapping[str, str] = os.environ) -> None:
    """Write the sentence, in one line, where the environment says; nowhere outside a pod.

    A file that cannot be written is only logged: the sentence is on standard error as well.
    """
    path = environ.get(ENV_TERMINATION_LOG)
    if not path:
        return
    try:
        Path(path).write_text(" ".join(sentence.split())[:MAX_LENGTH], encoding="utf-8")
    except OSError as error:
        log.warning("termination message is lost", extra=fields(path=path, error=str(error)))
