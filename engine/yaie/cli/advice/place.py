"""Where models run, for commands that only look: a running `yaie up`, or a cluster.

What flags name is taken; without flags a running `yaie up`, else the cluster of the kubeconfig, as
kubectl finds it.
"""

import argparse
import contextlib
import shlex
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from yaie.cli.advice.threads import in_thread
from yaie.cli.local.client import LocalClient, NotRunningError, running_folder, state_folder
from yaie.cli.local.files import DEFAULT_NAMESPACE
from yaie.extras import is_foreign, missing
from yaie_api.errors import InvalidRequestError, NotFoundError, UnavailableError, YaieError

if TYPE_CHECKING:
    from yaie_operator.watch.kube_api import KubeApi

SILENT: Final = "the API server does not answer"
TIMEOUT_S: Final = 3.0
"""For each request: a command that only looks does not keep its user waiting."""


class ForbiddenError(YaieError):
    """The account may not read this."""


class Place(Protocol):
    """A place where models run. Methods raise NotFoundError, ForbiddenError and UnavailableError.

    Attributes:
        name: for people: which cluster or machine it is.
        flags: with which flags other commands find it.
        is_local: whether it is a `yaie up`.
        namespace: the one that is meant if no flag says it.

    """

    name: str
    flags: str
    is_local: bool
    namespace: str

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """The JSON of a path of the API."""

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer to a question that is asked by creating it, such as an access review."""

    async def log(self, path: str, lines: int) -> str:
        """The last lines of a pod's log."""

    async def text(self, path: str) -> str:
        """What a path answers that need not be JSON."""


def add_place_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where to look")
    group.add_argument(
        "--state-dir", metavar="DIR", help="state folder of a `yaie up` (default: the running one)"
    )
    group.add_argument(
        "--kubeconfig", metavar="FILE", help="credentials of a cluster (default: as for kubectl)"
    )
    group.add_argument("--context", metavar="NAME", help="a context of the kubeconfig")
    group.add_argument("-n", "--namespace", help=f"default: the context's, or {DEFAULT_NAMESPACE}")


@contextlib.asynccontextmanager
async def reach(args: argparse.Namespace) -> AsyncIterator[Place]:
    """The place that the flags name, or that is there.

    Raises:
        InvalidRequestError: flags name two places.
        UnavailableError: there is none.

    """
    cluster = args.kubeconfig or args.context
    if args.state_dir and cluster:
        raise InvalidRequestError(
            "--state-dir names a `yaie up`, --kubeconfig a cluster: write one"
        )
    folder = running_folder(args)
    if args.state_dir or (not cluster and folder.socket.exists()):
        place = LocalPlace(LocalClient(folder.socket), str(folder.path), is_named=args.state_dir)
        try:
            await place.get("/version")
        except NotRunningError:
            if args.state_dir:
                raise
        else:
            yield place
            return
    async with _cluster(args) as found:
        yield found


class LocalPlace:
    """The API of a running `yaie up`."""

    is_local = True
    namespace = DEFAULT_NAMESPACE

    def __init__(self, client: LocalClient, folder: str, *, is_named: object) -> None:
        self._client = client
        self.name = f"`yaie up` in {folder}"
        self.flags = f" --state-dir {shlex.quote(folder)}" if is_named else ""

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        _, found = await in_thread(lambda: self._client.call("GET", path, query=query))
        return found

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        _, found = await in_thread(lambda: self._client.call("POST", path, body=body))
        return found

    async def log(self, path: str, lines: int) -> str:
        return await self._text(path, {"tailLines": str(lines)})

    async def text(self, path: str) -> str:
        return await self._text(path, {})

    async def _text(self, path: str, query: Mapping[str, str]) -> str:
        found = await in_thread(lambda: list(self._client.lines(path, query)))
        return b"".join(found).decode(errors="replace")


class KubePlace:
    """A cluster's API server."""

    is_local = False

    def __init__(self, api: "KubeApi", context: str, namespace: str, flags: str) -> None:
        self._api = api
        self.name = f"the cluster of context {context}" if context else "this pod's cluster"
        self.namespace = namespace or DEFAULT_NAMESPACE
        self.flags = flags

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        return await self._send("GET", path, query=query)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return await self._send("POST", path, body=body)

    async def log(self, path: str, lines: int) -> str:
        return await self._text(path, (("tailLines", str(lines)),))

    async def text(self, path: str) -> str:
        return await self._text(path, ())

    async def _text(self, path: str, query: tuple[tuple[str, str], ...]) -> str:
        from yaie_operator.watch.kube_api import Request

        with _as_our_errors():
            found = await self._api.read(Request("GET", path, query))
        return found.decode(errors="replace")

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        from yaie_operator.watch.kube_api import Request

        with _as_our_errors():
            return await self._api.send(
                Request(method, path, tuple((query or {}).items()), body=body)
            )


@contextlib.contextmanager
def _as_our_errors() -> Any:
    """Turn the port's errors into those that a command prints.

    Raises:
        NotFoundError: there is no such object or kind.
        ForbiddenError: the API server refuses to say it.
        UnavailableError: the API server does not answer.

    """
    from yaie_operator import cluster

    try:
        yield
    except cluster.NotFoundError as error:
        raise NotFoundError(str(error)) from error
    except (cluster.RefusedError, cluster.ConflictError) as error:
        raise ForbiddenError(str(error)) from error
    except cluster.UnreachableError as error:
        told = str(error.__cause__ or error) or f"no answer within {TIMEOUT_S:g} s"
        raise UnavailableError(f"{SILENT}: {told}") from error


@contextlib.asynccontextmanager
async def _cluster(args: argparse.Namespace) -> AsyncIterator[KubePlace]:
    try:
        from yaie_operator.watch import kube_api
    except ModuleNotFoundError as error:
        if not is_foreign(error):
            raise
        sentence = missing("to look at a cluster yaie", error, "operator")
        folder = state_folder(args).path
        raise UnavailableError(f"no `yaie up` runs in {folder}, and {sentence}") from error
    try:
        configuration = await kube_api.load_configuration(args.kubeconfig, args.context)
    except kube_api.NoCredentialsError as error:
        if args.kubeconfig or args.context:
            raise UnavailableError(str(error)) from error
        raise UnavailableError(
            f"no `yaie up` runs in {state_folder(args).path}, and there is no kubeconfig; start "
            "one with: yaie up -f model.yaml, or name a cluster with --kubeconfig"
        ) from error
    context, namespace = kube_api.current_context(args.kubeconfig, args.context)
    api = kube_api.KubeApi(configuration, timeout_s=TIMEOUT_S, user_agent="yaie")
    flags = "".join(
        f" --{name} {shlex.quote(value)}"
        for name in ("kubeconfig", "context")
        if (value := getattr(args, name)) is not None
    )
    try:
        yield KubePlace(api, context, namespace, flags)
    finally:
        await api.close()
