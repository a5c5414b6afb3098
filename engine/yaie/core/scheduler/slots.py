"""Allocates the slots of the device, and collects those that the next batch must release."""


class SlotAllocator:
    """`total` slots, numbered from 0. A slot that was given back may be taken again at once: a
    batch releases slots before it fills them.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._free = list(range(total - 1, -1, -1))
        self._released: list[int] = []

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        """Take a free slot. The caller has checked that there is one."""
        return self._free.pop()

    def give_back(self, slot: int) -> None:
        self._free.append(slot)
        self._released.append(slot)

    def take_releases(self) -> tuple[int, ...]:
        """Return the slots that the batch under construction must release, and forget them."""
        released, self._released = self._released, []
        return tuple(released)

    def release_again(self, slots: tuple[int, ...]) -> None:
        """Release `slots` with a later batch, because the batch that should release them failed.
        Slots that were taken since then are left out.
        """
        self._released.extend(set(slots).intersection(self._free))

    def check(self, taken: list[int]) -> None:
        """Prove that free + taken = total, each slot once; raises AssertionError."""
        if sorted(taken + self._free) != list(range(self._total)):
            raise AssertionError("a slot is lost or used twice")
