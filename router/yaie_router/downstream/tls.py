"""TLS of the router's own port: the pair of certificate and key, and its rotation.

A Secret of the type kubernetes.io/tls is mounted as a folder, and the kubelet swaps its files when
the Secret changes. New connections then get the new pair; those that are open keep theirs. A pair
that is broken never counts.
"""

import asyncio
import hashlib
import logging
import ssl
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from yaie_api.logs import fields

log = logging.getLogger(__name__)

PERIOD_S: Final = 5.0
"""Between two looks. The kubelet takes up to a minute, or somewhat more, to bring a change."""
HANDSHAKE_S: Final = 10.0


class TlsError(OSError):
    """The certificate and its key cannot be used. The message names the files."""


class Certificates:
    """The pair that is used now. `context`: for servers; it stays the same.

    Raises:
        TlsError: there is no pair that can be used.

    """

    def __init__(self, certfile: Path, keyfile: Path) -> None:
        self._files = (certfile, keyfile)
        self._seen, self._current = self._load()
        self._problem = ""
        self.context: Final = _context()
        self.context.sni_callback = self._choose

    def look(self) -> None:
        """Read the files; take their pair if it is a new one that works."""
        problem = self._renew()
        if problem and problem != self._problem:  # else it has been told
            told = fields(certificate=str(self._files[0]), error=problem)
            log.error("no new TLS pair; the one before stays", extra=told)
        self._problem = problem

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_S)
            self.look()

    def _renew(self) -> str:
        """Load the files if they have changed. Returns what is wrong with them, or ""."""
        try:
            if self._digest() == self._seen:
                return ""
            self._seen, self._current = self._load()
        except OSError as error:
            return str(error)
        log.info("new TLS pair", extra=fields(certificate=str(self._files[0])))
        return ""

    def _choose(self, connection: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _digest(self) -> bytes:
        certificate, key = self._files
        return hashlib.sha256(certificate.read_bytes() + b"\0" + key.read_bytes()).digest()

    def _load(self) -> tuple[bytes, ssl.SSLContext]:
        certificate, key = (path.resolve() for path in self._files)  # of one version
        context = _context()
        try:
            seen = self._digest()
            # Without a password of ours, OpenSSL would ask for one on the terminal.
            context.load_cert_chain(certificate, key, password="")
        except (OSError, ValueError) as error:
            named = f"{self._files[0]} and {self._files[1]}"
            raise TlsError(f"no TLS pair in {named}: {error}") from error
        return seen, context


class TlsSite(web.TCPSite):
    """An address with TLS, where a handshake takes at most `HANDSHAKE_S`."""

    async def start(self) -> None:
        """Listen."""
        await super(web.TCPSite, self).start()
        self._server = await asyncio.get_running_loop().create_server(
            self._runner.server,  # type: ignore[arg-type]  # it is set up
            self._host,
            self._port,
            ssl=self._ssl_context,
            ssl_handshake_timeout=HANDSHAKE_S,
            backlog=self._backlog,
        )


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
