"""What the world sees of `yaie up`: the address of its API, and who may use it.

The keys reach the router in its environment: command lines can be read by every user, and the
store's objects are kept on disk. Engines do not get them.
"""

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from yaie.cli.access_flags import Access, access_of, add_cors_flags, add_key_flags
from yaie_api import names

if TYPE_CHECKING:
    from yaie_local.kubelet.publish import Published

LOCALHOST: Final = "127.0.0.1"


def add_front_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `Front`."""
    group = parser.add_argument_group("who may use it")
    group.add_argument(
        "--host",
        default=LOCALHOST,
        metavar="ADDRESS",
        help="where the API listens (default: %(default)s, this machine only)",
    )
    add_key_flags(group, several=False)
    add_cors_flags(group)


@dataclass(frozen=True)
class Front:
    """The address of the API, and who may use it."""

    host: str = LOCALHOST
    access: Access = field(default_factory=Access)

    def bind(self, namespace: str, port: int) -> "Published":
        """Listen on the port; 0: any free one.

        Raises:
            StateError: the address cannot be used.

        """
        from yaie_local.kubelet.publish import bind

        environ = self.access.environment()
        return bind(namespace, names.ROUTER, port, host=self.host, environ=environ)

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment of a command that is a client of this `yaie up`."""
        keys = self.access.keys
        return {**base, names.ENV_API_KEY: keys[0]} if keys else dict(base)

    @property
    def hint(self) -> str:
        """A line for the user about keys; "": there is nothing to say."""
        if self.access.keys:
            return f"  key       asked for: clients send it, or have it in {names.ENV_API_KEY}\n"
        from yaie_api.http.access.origin import is_loopback

        if not is_loopback(self.host):
            return "  warning   anyone who reaches this address can use the models: set --api-key\n"
        return ""


def front_of(args: argparse.Namespace) -> Front:
    """The front that flags and environment name.

    Raises:
        InvalidRequestError: a flag cannot be used; the message says what to write.

    """
    return Front(args.host, access_of(args, os.environ))
