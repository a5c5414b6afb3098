"""The flags that say who may use a server: API keys, and pages of other origins. Names are vLLM's.

`yaie serve` and `yaie up` have them. A key is best kept in a file or in the environment: every user
of the machine may read the command lines of its processes.
"""

import argparse
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from yaie_api.errors import InvalidRequestError
from yaie_api.names import ENV_API_KEY

if TYPE_CHECKING:
    from yaie_api.http.access.cors import CorsPolicy

log = logging.getLogger(__name__)

SECRETS: Final = ("api_key",)
"""Names of parsed arguments that no log and no answer may show."""
_VLLM_KEY: Final = "VLLM_API_KEY"


def _closed() -> "CorsPolicy":
    from yaie_api.http.access.cors import CorsPolicy

    return CorsPolicy()


@dataclass(frozen=True)
class Access:
    """Who may use a server. `keys`: those that are accepted; empty: none is needed."""

    keys: tuple[str, ...] = field(default=(), repr=False)
    cors: "CorsPolicy" = field(default_factory=_closed)

    def environment(self) -> dict[str, str]:
        """The variables with which a router gets it."""
        keys = {ENV_API_KEY: "\n".join(self.keys)} if self.keys else {}
        return keys | self.cors.environment()


def add_key_flags(group: "argparse._ArgumentGroup", *, several: bool) -> None:
    """Add the flags for keys. `several`: one flag may be followed by several keys, as in vLLM; it
    may not where words follow the flags.
    """
    more: dict[str, Any] = {"nargs": "+", "action": "extend"} if several else {"action": "append"}
    group.add_argument(
        "--api-key",
        metavar="KEY",
        default=[],
        help=f"accept only requests with one of these keys (or set {ENV_API_KEY})",
        **more,
    )
    group.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="a file with such keys, one a line; unlike a flag, no other user sees it",
    )


def add_cors_flags(group: "argparse._ArgumentGroup") -> None:
    """Add the flags for pages of other origins."""
    flag = group.add_argument
    flag(
        "--allowed-origins",
        action="extend",
        type=_origins,
        default=[],
        metavar="ORIGINS",
        help="let web pages of these origins use the server (CORS): a JSON list, or with commas; "
        "* for all (default: none)",
    )
    flag(
        "--allowed-methods",
        action="extend",
        type=_words,
        default=[],
        metavar="METHODS",
        help="methods that those pages may use (default: all)",
    )
    flag(
        "--allowed-headers",
        action="extend",
        type=_words,
        default=[],
        metavar="HEADERS",
        help="request headers that those pages may send (default: all)",
    )
    flag(
        "--allow-credentials", action="store_true", help="browsers may send cookies of those pages"
    )


def access_of(args: argparse.Namespace, environment: Mapping[str, str]) -> Access:
    """Who may use the server, from the flags and, if these name no key, the environment.

    Raises:
        InvalidRequestError: a key is empty, the file has none, or flags for pages name no origin.

    """
    keys = api_keys(args.api_key, args.api_key_file, environment)
    return Access(keys, _cors(args))


def api_keys(
    flags: Sequence[str], file: Path | None, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """The keys that are accepted: of the flags and the file, else of the environment.

    Raises:
        InvalidRequestError: a key is empty or cannot be sent in a header, or the file has none. An
            empty key would leave the server open although somebody meant to close it.

    """
    from yaie_api.http.access.keys import parse_keys
    from yaie_api.logs import fields

    if any(not key.strip() for key in flags):
        raise InvalidRequestError(
            "--api-key is empty, as it is where a variable is not set: give a key, or leave the "
            "flag out.",
            param="api_key",
        )
    keys = tuple(key.strip() for key in flags) + (_keys_in(file) if file is not None else ())
    if not keys:
        keys = parse_keys(environment.get(ENV_API_KEY, ""))
    if not keys and environment.get(_VLLM_KEY):
        hint = f"set {ENV_API_KEY}: this server asks for no key"
        log.warning("a variable is not read", extra=fields(variable=_VLLM_KEY, instead=hint))
    if not all(key.isprintable() for key in keys):
        raise InvalidRequestError("An API key has a character that no header can carry.")
    return keys


def _keys_in(file: Path) -> tuple[str, ...]:
    from yaie_api.http.access.keys import parse_keys

    try:
        keys = parse_keys(file.expanduser().read_text())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InvalidRequestError(
            f"--api-key-file {str(file)!r} cannot be read: {reason}.", param="api_key_file"
        ) from None
    if not keys:
        raise InvalidRequestError(
            f"--api-key-file {str(file)!r} has no key: write one a line.", param="api_key_file"
        )
    return keys


def _cors(args: argparse.Namespace) -> "CorsPolicy":
    from yaie_api.http.access.cors import ANY, CorsPolicy

    others = (args.allowed_methods, args.allowed_headers, args.allow_credentials)
    if not args.allowed_origins and any(others):
        raise InvalidRequestError(
            "--allowed-methods, --allowed-headers and --allow-credentials apply to pages of "
            "--allowed-origins: name those, too.",
            param="allowed_origins",
        )
    return CorsPolicy(
        origins=tuple(args.allowed_origins),
        methods=tuple(method.upper() for method in args.allowed_methods) or (ANY,),
        headers=tuple(args.allowed_headers) or (ANY,),
        credentials=args.allow_credentials,
    )


def _words(text: str) -> tuple[str, ...]:
    from yaie_api.http.access.cors import parse_list

    try:
        return parse_list(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _origins(text: str) -> tuple[str, ...]:
    from yaie_api.http.access.cors import check_origin

    words = _words(text)
    try:
        for word in words:
            check_origin(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return words
