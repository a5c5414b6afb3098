"""`yaie explain NAME`: why a model is not ready, since when, and what to type next."""

import argparse
import asyncio
import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from yaie.cli.advice.place import add_place_flags, reach

if TYPE_CHECKING:
    from yaie.cli.advice.explaining.explained import Explanation
    from yaie.cli.main import Subparsers

DESCRIPTION = """\
Say why a model is not ready: what is awaited and since when, what its engines said last, why there
are so many of them, how the rollout goes, the last Events, and what to type next. Of a running
`yaie up`, or of the cluster that the kubeconfig names. It changes nothing.
"""


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "explain", help="say why a model is not ready, and what to do", description=DESCRIPTION
    )
    parser.add_argument("name", metavar="NAME", help="an InferenceModel")
    parser.add_argument("-o", "--output", choices=("json",), help="default: text")
    add_place_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from yaie.cli.advice.explaining.explained import lines
    from yaie.logging import setup

    setup("error")
    told, where = asyncio.run(_explained(args))
    if args.output == "json":
        print(json.dumps(asdict(told), indent=2))
    else:
        print("\n".join(lines(told, where)))
    return 0


async def _explained(args: argparse.Namespace) -> "tuple[Explanation, str]":
    """The explanation, and the name of the place that it is about."""
    from yaie.cli.advice.explaining.explained import explain
    from yaie.cli.advice.explaining.next_step import Commands
    from yaie.cli.advice.explaining.observe import observe

    async with reach(args) as place:
        namespace = args.namespace or place.namespace
        name = args.name.rpartition("/")[2]  # `inferencemodel/demo`, as kubectl prints it
        seen = await observe(place, namespace, name)
        endpoint = (seen.model.get("status") or {}).get("endpoint", "").removesuffix("/v1")
        commands = Commands(name, namespace, place.is_local, place.flags, endpoint)
        return explain(seen, commands, time.time()), place.name
