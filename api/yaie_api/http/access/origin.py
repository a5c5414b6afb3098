"""Protects a server that listens on a loopback address without a key from web pages.

A page can make a browser send requests to 127.0.0.1. It can also point a name of its own at that
address and read the answers (DNS rebinding). Such requests name another host in `Host` or `Origin`.
"""

import functools
import ipaddress
from urllib.parse import urlsplit

from yaie_api.errors import InvalidRequestError


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_local(host: str, origin: str) -> None:
    """Refuse a request whose `Host` or `Origin` header names another machine.

    An IP address in `Host` is allowed: no name was resolved. A missing header is an empty string.

    Raises:
        InvalidRequestError: code `foreign_host`.

    """
    if not _is_local_name(_hostname(f"//{host}"), any_address=True):
        raise _foreign("Host")
    if origin and not _is_local_name(_hostname(origin), any_address=False):
        raise _foreign("Origin")


@functools.lru_cache(maxsize=64)  # nearly all requests name the same host
def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_local_name(name: str, *, any_address: bool) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return any_address or address.is_loopback


def _foreign(header: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"The {header} header names another machine, and this server is for this one only: use "
        "localhost or an address. With --api-key it serves other names, too, and with "
        "--allowed-origins pages of other origins.",
        code="foreign_host",
    )
