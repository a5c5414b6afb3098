"""`yaie scale NAME --replicas N`: set the number of engines of a model."""

import argparse
from typing import TYPE_CHECKING

from yaie.cli.local.client import MERGE, LocalClient, add_state_flags, model_path
from yaie.cli.values import count

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("scale", help="set the number of replicas of a model")
    parser.add_argument("name", metavar="NAME", help="name of the model")
    parser.add_argument(
        "--replicas", type=count, required=True, metavar="N", help="0 stops the model and keeps it"
    )
    add_state_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    path = f"{model_path(args.namespace, args.name)}/scale"
    body = {"spec": {"replicas": args.replicas}}
    query = {"fieldManager": "yaie-scale"}
    LocalClient.of(args).call("PATCH", path, body=body, content_type=MERGE, query=query)
    print(f"inferencemodel/{args.name} scaled to {args.replicas}")
    return 0
