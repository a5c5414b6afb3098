"""The slots of the device: which are free, and which ones the next batch has to give up."""


class SlotAllocator:
    """`total` slots, numbered from 0. One that was given back may be taken again at once: a batch
    releases slots before it fills them.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._free = list(range(total - 1, -1, -1))
        self._released: list[int] = []

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        """A free slot; the caller knows that there is one."""
        return self._free.pop()

    def give_back(self, slot: int) -> None:
        self._free.append(slot)
        self._released.append(slot)

    def take_releases(self) -> tuple[int, ...]:
        """Slots that the batch which is being sealed has to give up."""
        released, self._released = self._released, []
        return tuple(released)

    def release_again(self, slots: tuple[int, ...]) -> None:
        """The batch that was to give these up failed; those nobody took since are still to go."""
        self._released.extend(set(slots).intersection(self._free))

    def check(self, taken: list[int]) -> None:
        """Prove that free + taken = total, each slot once; raises AssertionError."""
        if sorted(taken + self._free) != list(range(self._total)):
            raise AssertionError("a slot is lost or used twice")
