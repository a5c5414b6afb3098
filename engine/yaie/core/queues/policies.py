"""Creates the waiting queue of a policy by the policy's name."""

from yaie.core.kv_cache.radix_cache import RadixCache
from yaie.core.queues.fair import FairQueue
from yaie.core.queues.longest_prefix import LongestPrefixQueue
from yaie.core.queues.policy import OrderedQueue, WaitingQueue, fcfs, priority
from yaie.core.sequence import Sequence
from yaie_api.engine_config import settings

POLICIES = settings()["scheduling_policy"].choices


def queue_for(policy: str, kv: RadixCache) -> WaitingQueue:
    """Create the waiting queue of a policy. `kv`: the prefix cache that `longest-prefix` looks at.

    Raises:
        ValueError: the name is not in `POLICIES`.

    """

    def cached(sequence: Sequence) -> int:
        return kv.lookup(sequence.request.salt, sequence.key)

    match policy:
        case "fcfs":
            return OrderedQueue(fcfs)
        case "priority":
            return OrderedQueue(priority)
        case "longest-prefix":
            return LongestPrefixQueue(cached)
        case "fair":
            return FairQueue()
    raise ValueError(f"no policy {policy!r}")
