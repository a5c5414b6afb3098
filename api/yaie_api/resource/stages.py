"""Words in the messages of conditions that tell how far the start of an engine is.

The operator writes them, and routers look for them, to tell clients that wait. All pods that wait
for the same thing say it in the same words.
"""

from typing import Final

SCHEDULING: Final = "waits for the scheduler"
NO_NODE: Final = "waits for a node"
PULLING: Final = "pulls its image and mounts its volumes"
LOADING: Final = "loads the model"
UNREACHED: Final = "answers, but not yet to every router"
