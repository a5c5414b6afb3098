"""`yaie run MODEL`: chat with a model by its name, without a file and without a server before.

Where a `yaie up` runs, the model is applied there and stays. Otherwise this command starts what
`yaie up` starts, in a state folder of its own, and ends it with the chat.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from yaie.cli.chat import flags as chat_flags
from yaie.cli.local.client import (
    LocalClient,
    NotRunningError,
    add_state_flags,
    running_folder,
    state_folder,
)
from yaie.cli.local.files import Loaded
from yaie.cli.local.named_models import MODEL_HELP, named_models, source_of
from yaie.cli.local.progress import ModelState, StartProgress
from yaie.cli.local.stages import last_words, stages
from yaie_api import names
from yaie_api.errors import InvalidRequestError, UnavailableError

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers

DESCRIPTION = """\
Chat with a model at once: it is downloaded if need be, and runs on this machine until the chat
ends, meanwhile with a page for the browser and an OpenAI-compatible API. Where a `yaie up` runs,
the model is added to it and stays. With --prompt or piped input it prints one answer and ends.
"""
Model = Mapping[str, Any]
_LOOK_S: Final = 0.3
_TIMEOUT_S: Final = 3600.0


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "run", help="chat with a model by its name", description=DESCRIPTION
    )
    parser.add_argument("model", metavar="MODEL", help=f"{MODEL_HELP}, or a model of `yaie up`")
    chat_flags.add_message_flags(parser)
    chat_flags.add_sampling_flags(parser)
    parser.add_argument(
        "--api-key", metavar="KEY", help="for a `yaie up` that asks for one (or set YAIE_API_KEY)"
    )
    add_state_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Start the model where it does not run yet, chat with it, and return the exit status.

    Raises:
        InvalidRequestError: there is no such model, or it has no engines.
        UnavailableError: the model cannot start.

    """
    client = LocalClient(running_folder(args).socket)
    try:
        models = client.models(args.namespace)
    except NotRunningError:
        models = None
    name = _found(models or (), args)
    wanted = None if name else _named(args)
    prompt = chat_flags.piped_prompt(args.prompt)
    if prompt is not None and not prompt.strip():
        print("yaie run: no prompt: give --prompt or write to standard input.", file=sys.stderr)
        return 2
    if wanted is not None:
        if models is None:
            return _run_here(args, wanted, prompt)
        name = _applied(client, models, wanted)
    return _chat_there(client, args, str(name), prompt)


def _found(models: Sequence[Model], args: argparse.Namespace) -> str | None:
    """The name of the model among those that run: it has this name, or this source."""
    by_name = {str(model["metadata"]["name"]): model for model in models}
    if args.model in by_name:
        return str(args.model)
    if not by_name:
        return None
    source = _named(args).object["spec"]["model"]["source"]
    same = (n for n, model in by_name.items() if model["spec"]["model"]["source"] == source)
    return next(same, None)


def _applied(client: LocalClient, models: Sequence[Model], wanted: Loaded) -> str:
    """Add the model to the `yaie up` that runs; returns its name.

    Raises:
        InvalidRequestError: the name is another model's.

    """
    from yaie.cli.commands.local.apply import apply

    name = str(wanted.object["metadata"]["name"])
    for model in models:
        if model["metadata"]["name"] == name:
            raise InvalidRequestError(
                f"a model {name} of {model['spec']['model']['source']} runs here already; delete "
                f"it (yaie delete {name}), or apply a file that names yours otherwise"
            )
    apply(client, wanted, dry_run=False)
    print(f"{wanted.name} created; `yaie delete {name}` ends it", file=sys.stderr)
    return name


def _chat_there(client: LocalClient, args: argparse.Namespace, name: str, piped: str | None) -> int:
    """Chat with a model of a running `yaie up` once it is ready."""
    from yaie.cli.commands import chat

    args.endpoint = _endpoint_when_ready(client, args.namespace, name)
    args.model = name
    return chat.talk(args, piped)


def _endpoint_when_ready(client: LocalClient, namespace: str, name: str) -> str:
    """Wait until a model is ready, showing progress; returns its endpoint.

    Raises:
        InvalidRequestError: the model has no replicas.
        UnavailableError: it is not ready after an hour, or was deleted.

    """
    progress, began = StartProgress(sys.stderr), time.monotonic()
    while (elapsed_s := time.monotonic() - began) < _TIMEOUT_S:
        model = next((m for m in client.models(namespace) if m["metadata"]["name"] == name), None)
        if model is None:
            raise UnavailableError(f"the model {name} was deleted")
        state = ModelState.of(model)
        if state.settled:
            progress.clear()
            return _endpoint(model)
        pods = client.pods(namespace, f"{names.LABEL_MODEL}={name}")
        if state.has_failed:
            raise UnavailableError(
                f"{last_words(pods) or state.message} The model is still deployed: `yaie delete "
                f"{name}` ends it"
            )
        if elapsed_s > _LOOK_S:
            progress.show([ModelState.of(model, stages(pods))], elapsed_s)
        time.sleep(_LOOK_S)
    raise UnavailableError(f"{name} is not ready after an hour: {state.message}")


def _endpoint(model: Model) -> str:
    name = model["metadata"]["name"]
    if not model["spec"].get("replicas", 1) or model["spec"].get("suspend"):
        raise InvalidRequestError(
            f"{name} has no replicas; start one with: yaie scale {name} --replicas 1"
        )
    return str(model["status"]["endpoint"])


def _run_here(args: argparse.Namespace, wanted: Loaded, piped: str | None) -> int:
    """Run the model with an operator and a router of its own, and chat with it."""
    from yaie.cli.local.session import Options, main

    folder = state_folder(args).of_run
    folder.journal.unlink(missing_ok=True)  # it holds the model of this command only
    name = wanted.object["metadata"]["name"]
    options = Options(
        state=folder,
        namespace=args.namespace,
        port=None,
        objects=(wanted,),
        command=(sys.executable, "-m", "yaie", "chat", "--model", name, *_chat_flags(args)),
        stdin=piped.encode() if piped is not None and args.prompt is None else None,
        gives_up=True,
        news=sys.stderr,
    )
    return main(options)


def _named(args: argparse.Namespace) -> Loaded:
    source_of(args.model)  # refused before anything is looked for
    from yaie_local.kubelet import gpus

    has_gpu = bool(gpus.detect(os.environ))
    (model,) = named_models([args.model], args.namespace, has_gpu=has_gpu)
    return model


def _chat_flags(args: argparse.Namespace) -> list[str]:
    given = {name: getattr(args, name) for name in chat_flags.PASSED_ON}
    return [
        f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None
    ]
