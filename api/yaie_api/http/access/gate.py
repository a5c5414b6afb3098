"""Decides whether a request may be looked at: its API key, the machine it comes from, its origin.

The engine's server and the router both ask it, before anything else, so the rule is one:

- Where keys are asked for, every path needs one, except those of `OPEN_PATHS`, the pages, and the
  question of a browser that precedes a request (a preflight).
- Where none is asked for, and the server listens on loopback addresses only, a request that a web
  page of another machine may have caused is refused, unless its origin was allowed.
"""

from collections.abc import Iterable
from typing import Final

from yaie_api import names
from yaie_api.errors import AuthenticationError, InvalidRequestError
from yaie_api.http import pages
from yaie_api.http.access.cors import CorsPolicy
from yaie_api.http.access.head import Head
from yaie_api.http.access.keys import ApiKeys, shown_key
from yaie_api.http.access.origin import check_local

OPEN_PATHS: Final = frozenset({names.PATH_LIVE, names.PATH_READY, "/health", "/ping"})
"""Health: kubelets and load balancers have no keys."""
OPENAPI: Final = "/openapi.json"
"""The description of the API: the same for every server, with nothing of this one."""


class Gate:
    """`keys`: those that are accepted; empty: none is needed. `local_only`: the server listens on
    loopback addresses only. `with_pages`: it has the pages, and the description of its API.
    """

    def __init__(
        self,
        keys: Iterable[str] = (),
        cors: CorsPolicy | None = None,
        *,
        local_only: bool = False,
        with_pages: bool = True,
    ) -> None:
        self._keys = ApiKeys(keys)
        self._asks = bool(self._keys)
        self._cors = cors or CorsPolicy()
        self._with_pages = with_pages
        self.local_only = local_only

    @property
    def asks_for_keys(self) -> bool:
        return self._asks

    def accept_only(self, keys: ApiKeys) -> None:
        """From now on ask for one of these keys. Where there are none, nobody is let in."""
        self._keys = keys
        self._asks = True

    def check(self, head: Head) -> str:
        """Return the tenant whose key a request shows, "" where none is asked for, or refuse it.

        Preflights are not asked about here.

        Raises:
            AuthenticationError: it shows no key that is accepted.
            InvalidRequestError: it names another machine, in `Host` or `Origin`.

        """
        if self._asks:
            tenant = self._keys.tenant_of(shown_key(head))
            if tenant is None and not self._is_open(head):
                raise AuthenticationError("A valid API key is required: Authorization: Bearer KEY.")
            return tenant or ""
        if self.local_only:
            origin = head.origin
            check_local(head.header(b"host"), "" if self._cors.allows(origin) else origin)
        return ""

    def preflight(self, head: Head) -> dict[str, str] | None:
        """Headers of the answer to a preflight, 204 without a body. None: it is another request.

        Raises:
            InvalidRequestError: pages of that origin are not allowed.

        """
        if not self._cors.is_preflight(head):
            return None
        if not self._cors.allows(head.origin):
            raise InvalidRequestError(
                f"Pages of {head.origin[:200]!r} may not use this server: name that origin in "
                "--allowed-origins.",
                code="origin_not_allowed",
            )
        return self._cors.preflight_headers(head)

    def answer_headers(self, head: Head) -> dict[str, str]:
        """Headers that every answer to this request gets, by lower-case name."""
        return self._cors.answer_headers(head.origin) if self._cors.origins else {}

    def _is_open(self, head: Head) -> bool:
        if head.path in OPEN_PATHS:
            return True
        if not self._with_pages or head.method not in pages.METHODS:
            return False
        page = pages.find(head.path, head.header(b"accept"))
        return page is not None or head.path == OPENAPI
