"""What each tenant may take, from the entries of a ConfigMap. Pure.

    kubectl create configmap yaie-limits --from-literal=team-a='{"tokensPerMinute": 100000}'

The entry `default` is for tenants without one of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Annotated, Final

import msgspec

from yaie_router.tenants.mount import Entries

DEFAULT: Final = "default"

_Count = Annotated[int, msgspec.Meta(ge=1, le=10**12)]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """None: there is no limit. `weight`: the share of engines that all tenants want at once."""

    requests_per_minute: _Count | None = None
    tokens_per_minute: _Count | None = None
    max_concurrency: _Count | None = None
    weight: Annotated[float, msgspec.Meta(ge=0.01, le=1000)] = 1.0

    def shared(self, routers: int) -> "Limits":
        """Return what each of so many routers lets through, at least one of each."""

        def share(limit: int | None) -> int | None:
            return None if limit is None else ceil(limit / routers)

        return Limits(
            requests_per_minute=share(self.requests_per_minute),
            tokens_per_minute=share(self.tokens_per_minute),
            max_concurrency=share(self.max_concurrency),
            weight=self.weight,
        )


@dataclass(frozen=True)
class LimitBook:
    """The limits of all tenants."""

    default: Limits = field(default_factory=Limits)
    tenants: Mapping[str, Limits] = field(default_factory=dict)

    def of(self, tenant: str) -> Limits:
        return self.tenants.get(tenant, self.default)


@dataclass(frozen=True)
class WrongEntry:
    """An entry that cannot be read, and what is wrong with it."""

    tenant: str
    problem: str


def read_limits(entries: Entries, before: LimitBook) -> tuple[LimitBook, tuple[WrongEntry, ...]]:
    """Read all entries. For one that cannot be read, what was there before counts."""
    tenants: dict[str, Limits] = {}
    wrong: list[WrongEntry] = []
    for tenant, entry in entries.items():
        try:
            tenants[tenant] = msgspec.json.decode(entry, type=Limits)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            wrong.append(WrongEntry(tenant, str(error)))
            if tenant == DEFAULT:
                tenants[tenant] = before.default
            elif tenant in before.tenants:
                tenants[tenant] = before.tenants[tenant]
    default = tenants.pop(DEFAULT, Limits())
    return LimitBook(default, tenants), tuple(wrong)
