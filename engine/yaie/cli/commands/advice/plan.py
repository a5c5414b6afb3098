"""`yaie plan MODEL` or `-f FILE…`: what a model takes, and where it fits."""

import argparse
import asyncio
import json
import os
from typing import TYPE_CHECKING

from yaie.cli import foreign_flags, serve_flags
from yaie.cli.advice.place import add_place_flags
from yaie.cli.advice.planning import cards
from yaie.cli.local.files import add_files_flag
from yaie_api.errors import UnavailableError

if TYPE_CHECKING:
    from yaie.cli.advice.planning.memory import Fit, Subject
    from yaie.cli.advice.planning.room import Room
    from yaie.cli.advice.planning.subject import Wish
    from yaie.cli.advice.planning.text import Plan
    from yaie.cli.main import Subparsers

DESCRIPTION = """\
Compute what a model takes and where it fits, from its config.json alone: weights, KV cache per
token, tokens and sequences that fit on common GPUs. Where a cluster or a `yaie up` can be reached,
also which nodes have room for it now, and whether a rollout has a spare place. Nothing is loaded,
and of a model of the hub only its settings are downloaded. Use the flags that the server will have.
The exit status is 1 if the model fits on none of the GPUs, or if no node has room for it.
"""
USAGE = "yaie plan [MODEL] [-f FILE ...] [FLAGS]"


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "plan",
        help="compute what a model takes and where it fits",
        description=DESCRIPTION,
        usage=USAGE,
    )
    flag = parser.add_argument
    flag("model", nargs="?", metavar="MODEL", help="as in `yaie serve`")
    add_files_flag(parser, required=False)
    flag(
        "--gpu",
        action="append",
        default=[],
        type=cards.card_name,
        choices=tuple(cards.MEMORY_MIB),
        metavar="CARD",
        help=f"only this card: {', '.join(cards.COMMON)}, …; may be given several times",
    )
    flag(
        "--gpu-memory",
        action="append",
        default=[],
        type=cards.size,
        metavar="SIZE",
        help="only a GPU of this memory, for example 48GiB",
    )
    flag("--no-cluster", action="store_true", help="look at no cluster and at no `yaie up`")
    flag("-o", "--output", choices=("json",), help="default: text")
    add_place_flags(parser)
    serve_flags.add_engine_flags(parser.add_argument_group("engine"))
    foreign_flags.add(parser)
    parser.set_defaults(run=run, served_model_name=())


def run(args: argparse.Namespace) -> int:
    """Plan the models of the command line and return the exit status.

    Raises:
        InvalidRequestError: a model cannot be read or is refused.

    """
    from yaie.cli.advice.planning import subject, text
    from yaie.logging import setup

    setup("error")
    foreign_flags.log_notes(args, os.environ)
    plans = [_plan(wish, args) for wish in subject.wishes(args)]
    if args.output == "json":
        print(json.dumps({"models": [text.as_json(plan) for plan in plans]}, indent=2))
    else:
        print("\n\n".join("\n".join(text.lines(plan)) for plan in plans))
    return 0 if all(plan.is_possible for plan in plans) else 1


def _plan(wish: "Wish", args: argparse.Namespace) -> "Plan":
    from yaie.cli.advice.planning.subject import subject_of
    from yaie.cli.advice.planning.text import Plan

    subject, room, unseen = subject_of(wish), None, ""
    if not args.no_cluster:
        try:
            room = asyncio.run(_look(wish, args))
        except UnavailableError as error:
            if args.state_dir or args.kubeconfig or args.context:
                raise
            unseen = error.message
    return Plan(wish, subject, devices(wish, subject, args, room), room, unseen)


async def _look(wish: "Wish", args: argparse.Namespace) -> "Room":
    from yaie.cli.advice.place import reach
    from yaie.cli.advice.planning.room import look

    async with reach(args) as place:
        return await look(place, wish, wish.namespace or place.namespace)


def devices(
    wish: "Wish", subject: "Subject", args: argparse.Namespace, room: "Room | None"
) -> "list[Fit]":
    """How the model fits on the GPUs that flags name, else on those of the place, else on this
    machine's and on common ones; in the memory of a CPU where it is not for a GPU.
    """
    from yaie.cli.advice.gpus import installed
    from yaie.cli.advice.planning.memory import on_gpu

    named = [cards.card(name) for name in args.gpu]
    named += [cards.Card(f"GPU of {size / 2**30:g} GiB", size) for size in args.gpu_memory]
    if not named and subject.config.device == "cpu":
        return [_on_cpu(wish, subject)]
    if not named and room is not None:
        there = {(seat.product, seat.gpu_memory_bytes) for seat in room.seats if seat.matches}
        named = [cards.Card(name or "GPU", size) for name, size in there if size]
    if not named:
        here = {gpu.name: gpu.memory_bytes for gpu in installed()}
        named = [cards.Card(name, size) for name, size in here.items()]
        named += [cards.card(name) for name in cards.COMMON]
    return [on_gpu(subject, card) for card in sorted(named, key=lambda card: card.memory_bytes)]


def _on_cpu(wish: "Wish", subject: "Subject") -> "Fit":
    """How the model fits into the memory of its container, or of this machine."""
    from yaie.cli.advice.planning.memory import on_cpu
    from yaie.runtime import host
    from yaie_operator.reconcile.quantity import amount

    limit = amount(wish.memory) if wish.memory else None
    if limit is not None:
        where = f"resources.memory {wish.memory}"
        return on_cpu(subject, free_bytes=int(limit), memory_bytes=int(limit), where=where)
    return on_cpu(
        subject,
        free_bytes=host.available_memory_bytes(),
        memory_bytes=host.usable_memory_bytes(),
        where="memory of this machine that is free",
    )
