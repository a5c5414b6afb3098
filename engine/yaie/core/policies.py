"""The policies by name, with what each of them may know."""

from yaie.core.fair import FairQueue
from yaie.core.kv_manager import KVManager
from yaie.core.longest_prefix import LongestPrefixQueue
from yaie.core.policy import OrderedQueue, WaitingQueue, fcfs, priority
from yaie.core.sequence import Sequence

POLICIES = ("fcfs", "priority", "longest-prefix", "fair")


def queue_for(policy: str, kv: KVManager) -> WaitingQueue:
    """The waiting queue of a policy; raises ValueError for a name that is not in `POLICIES`."""

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
