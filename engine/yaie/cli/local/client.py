"""Client of the REST API of a running `yaie up`: HTTP over its unix socket.

Uses only the standard library, so that commands such as `yaie ps` start quickly.
"""

import argparse
import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from yaie.cli.local.files import DEFAULT_NAMESPACE
from yaie_api import names
from yaie_api.errors import InvalidRequestError, NotFoundError, UnavailableError, YaieError

if TYPE_CHECKING:
    from yaie_local.state import StateFolder

APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
MODELS: Final = f"/apis/{names.API_VERSION}"
_TIMEOUT_S: Final = 30.0


def add_state_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        help="state folder of `yaie up` (default: ~/.local/state/yaie)",
    )
    parser.add_argument("-n", "--namespace", default=DEFAULT_NAMESPACE, help="default: %(default)s")


class NotRunningError(UnavailableError):
    """No `yaie up` runs in the state folder."""


def state_folder(args: argparse.Namespace) -> "StateFolder":
    """The state folder given by the flags."""
    from yaie_local.state import StateFolder

    return StateFolder(Path(args.state_dir)) if args.state_dir else StateFolder.default()


def running_folder(args: argparse.Namespace) -> "StateFolder":
    """The state folder of what runs: of `yaie up`, or of `yaie run` where only that runs."""
    folder = state_folder(args)
    return folder.of_run if not _answers(folder) and _answers(folder.of_run) else folder


def _answers(folder: "StateFolder") -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(folder.socket)) == 0


class LocalClient:
    """Client of one `yaie up`. Every method raises UnavailableError if none is running."""

    def __init__(self, socket_path: Path) -> None:
        self._socket_path = socket_path

    @classmethod
    def of(cls, args: argparse.Namespace) -> "LocalClient":
        """The client for the state folder given by the flags."""
        return cls(running_folder(args).socket)

    def call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """Send a request and return the status and the JSON body.

        Raises:
            InvalidRequestError: the server refuses the request.
            NotFoundError: the object does not exist.
            UnavailableError: the server does not answer, or answers 503.

        """
        connection = self._connect(_TIMEOUT_S)
        try:
            data = None if body is None else json.dumps(body)
            headers = {"Content-Type": content_type} if data is not None else {}
            connection.request(method, _url(path, query), body=data, headers=headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._silent() from error
        finally:
            connection.close()
        _check(response.status, text)
        decoded: dict[str, Any] = json.loads(text)
        return response.status, decoded

    def lines(self, path: str, query: Mapping[str, str] | None = None) -> Iterator[bytes]:
        """Yield the lines of a response that may have no end."""
        connection = self._connect(None)
        try:
            connection.request("GET", _url(path, query))
            response = connection.getresponse()
            if response.status >= 400:
                _check(response.status, response.read())
            while line := response.readline():
                yield line
        except (OSError, http.client.HTTPException) as error:
            raise self._silent() from error
        finally:
            connection.close()

    def models(self, namespace: str) -> list[dict[str, Any]]:
        _, found = self.call("GET", model_path(namespace))
        items: list[dict[str, Any]] = found["items"]
        return items

    def pods(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Pods that a label selector matches, e.g. `yaie.dev/model=demo`."""
        _, found = self.call(
            "GET", f"/api/v1/namespaces/{namespace}/pods", query={"labelSelector": selector}
        )
        items: list[dict[str, Any]] = found["items"]
        return items

    def _connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        connection = _UnixConnection(self._socket_path, timeout_s)
        try:
            connection.connect()
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise NotRunningError(
                f"nothing runs in {self._socket_path.parent}; start it with: yaie up -f model.yaml"
                ", or chat at once: yaie run MODEL"
            ) from error
        except OSError as error:
            folder = self._socket_path.parent
            raise UnavailableError(f"{folder} cannot be used: {error.strerror}") from error
        return connection

    def _silent(self) -> UnavailableError:
        folder = self._socket_path.parent
        return UnavailableError(f"the `yaie up` in {folder} has ended or does not answer")


class _UnixConnection(http.client.HTTPConnection):
    """HTTP/1.1 to a unix socket."""

    def __init__(self, path: Path, timeout_s: float | None) -> None:
        super().__init__("localhost")
        self._path = path
        self._timeout_s = timeout_s

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._timeout_s)
        try:
            self.sock.connect(str(self._path))
        except OSError:
            self.sock.close()
            raise


def model_path(namespace: str, name: str | None = None) -> str:
    """The REST path of the models of a namespace, or of one of them."""
    base = f"{MODELS}/namespaces/{quote(namespace, safe='')}/{names.PLURAL}"
    return base if name is None else f"{base}/{quote(name, safe='')}"


def object_path(obj: Mapping[str, Any]) -> str:
    """The REST path of an object from a file."""
    meta = obj["metadata"]
    if obj["kind"] == names.KIND:
        return model_path(meta["namespace"], meta["name"])
    plural = f"{obj['kind'].lower()}s"
    return f"/api/v1/namespaces/{quote(meta['namespace'])}/{plural}/{quote(meta['name'])}"


def _url(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _check(status: int, text: bytes) -> None:
    """Raise an error for a response that reports a failure.

    Raises:
        YaieError: the status is 400 or more; the status determines the class.

    """
    if status < 400:
        return
    try:
        message = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        message = text.decode(errors="replace")[:500]
    kinds: dict[int, type[YaieError]] = {404: NotFoundError, 503: UnavailableError}
    raise kinds.get(status, InvalidRequestError)(message)
