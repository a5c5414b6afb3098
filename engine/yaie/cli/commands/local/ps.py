"""`yaie ps`: the models of a running `yaie up` and their state."""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from yaie.cli.local.client import LocalClient, add_state_flags, model_path
from yaie.cli.local.progress import ModelState

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers

Model = Mapping[str, Any]
COLUMNS: Final = ("NAME", "PHASE", "READY", "MODEL", "ENDPOINT", "AGE")
WIDE: Final = (*COLUMNS, "GPU", "CONTEXT", "CONCURRENCY", "REASON", "MESSAGE")


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("ps", help="list models and their state")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these models")
    parser.add_argument("-o", "--output", choices=("wide", "json", "yaml"), help="default: a table")
    parser.add_argument(
        "-w", "--watch", action="store_true", help="go on: print a model again when it changes"
    )
    add_state_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    client = LocalClient.of(args)
    _, found = client.call("GET", model_path(args.namespace))
    models = [model for model in found["items"] if _is_wanted(model, args.names)]
    _print(models, args.output, heading=True)
    if args.watch:
        _follow(client, args, found["metadata"]["resourceVersion"])
    missing = set(args.names) - {model["metadata"]["name"] for model in models}
    for name in sorted(missing):
        print(f"yaie: no model named {name}", file=sys.stderr)
    return 1 if missing else 0


def table(rows: Sequence[Sequence[str]], *, trimmed: bool = True) -> str:
    """Format rows with columns as wide as their longest cell, separated by three spaces. `trimmed`:
    without spaces at the end.
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("   ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() if trimmed else line for line in lines)


def row(model: Model, now_s: float) -> tuple[str, ...]:
    """The cells of a model, including those of the wide output."""
    from yaie_local.objects import seconds_of

    spec, status = model["spec"], model.get("status") or {}
    ready: Mapping[str, Any] = next(
        (c for c in status.get("conditions", ()) if c["type"] == "Ready"), {}
    )
    return (
        model["metadata"]["name"],
        status.get("phase") or "Pending",
        status.get("ready") or "-",
        spec["model"]["source"],
        status.get("endpoint") or "-",
        age(now_s - seconds_of(model["metadata"]["creationTimestamp"])),
        str(spec.get("resources", {}).get("gpu", {}).get("count", 0)),
        str(status.get("model", {}).get("contextLength") or "-"),
        str(status.get("capacity", {}).get("maxConcurrency") or "-"),
        ready.get("reason", "-"),
        ready.get("message", "-"),
    )


def trouble(model: Model) -> str:
    """Why a model is not ready, in a line; "" for one that is ready, or that need not be."""
    state = ModelState.of(model)
    return "" if state.settled else f"{state.name}: {state.message}"


def age(seconds: float) -> str:
    """An age in kubectl's form: `42s`, `5m10s`, `3h12m`, `9d`."""
    whole = max(0, int(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes_rest = divmod(minutes, 60)
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    return f"{hours}h{minutes_rest}m" if hours < 24 else f"{hours // 24}d"


def _print(models: Sequence[Model], output: str | None, *, heading: bool) -> None:
    import time

    if output in ("json", "yaml"):
        _print_objects(models, output)
        return
    if not models and heading:
        print("no models; deploy one with: yaie apply -f model.yaml", file=sys.stderr)
        return
    width = len(WIDE if output == "wide" else COLUMNS)
    now_s = time.time()
    print(table([WIDE[:width], *(row(model, now_s)[:width] for model in models)]), flush=True)
    if output != "wide":  # whose last column says it
        for line in filter(None, map(trouble, models)):
            print(line, file=sys.stderr)


def _print_objects(models: Iterable[Model], output: str) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [_without_owners(m) for m in models]}
    if output == "json":
        print(json.dumps(listed, indent=2))
        return
    import yaml

    print(yaml.safe_dump(listed, sort_keys=False), end="")


def _follow(client: LocalClient, args: argparse.Namespace, version: str) -> None:
    """Print each model that changes, until an interrupt or the end of `yaie up`."""
    query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "86400"}
    for line in client.lines(model_path(args.namespace), query):
        event = json.loads(line)
        if event["type"] in ("ADDED", "MODIFIED") and _is_wanted(event["object"], args.names):
            _print([event["object"]], args.output, heading=False)


def _is_wanted(model: Model, names: Sequence[str]) -> bool:
    return not names or model["metadata"]["name"] in names


def _without_owners(model: Model) -> dict[str, Any]:
    """A model without managedFields, which are of no use in the output."""
    meta = {key: value for key, value in model["metadata"].items() if key != "managedFields"}
    return {**model, "metadata": meta}
