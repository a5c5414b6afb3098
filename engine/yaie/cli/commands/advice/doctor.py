"""`yaie doctor`: what this machine and the cluster lack."""

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from yaie.cli.advice.place import SILENT, add_place_flags, reach
from yaie_api.errors import UnavailableError

if TYPE_CHECKING:
    from yaie.cli.advice.checking.report import Check, Finding
    from yaie.cli.main import Subparsers

DESCRIPTION = """\
Check this machine for what engines need, and the cluster or the running `yaie up`, if there is one,
for what models need. Each line says ok, warn, fail or skip, and below it what to do. The checks run
side by side, each for 3 seconds at most, and change nothing. The exit status is 1 if one fails.
"""
MACHINE = "This machine"


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="check this machine and the cluster for what yaie needs",
        description=DESCRIPTION,
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--no-cluster", action="store_true", help="only this machine")
    only.add_argument("--no-machine", action="store_true", help="only the cluster or `yaie up`")
    parser.add_argument("-o", "--output", choices=("json",), help="default: text")
    add_place_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the checks and return the exit status.

    Raises:
        InvalidRequestError: flags name two places.
        UnavailableError: the place that they name is not there.

    """
    from yaie.cli.advice.checking.report import lines, total
    from yaie.logging import setup

    setup("error")
    found = asyncio.run(_found(args))
    everything = [finding for findings in found.values() for finding in findings]
    if args.output == "json":
        checks = {where: [asdict(one) for one in findings] for where, findings in found.items()}
        print(json.dumps(checks, indent=2))
    else:
        for title, findings in found.items():
            print("\n".join(lines(title, findings)), end="\n\n")
        print(total(everything))
    return 1 if any(finding.level == "fail" for finding in everything) else 0


async def _found(args: argparse.Namespace) -> "Mapping[str, Sequence[Finding]]":
    """The findings by where they were made; machine and cluster are looked at side by side."""
    from yaie.cli.advice.checking.report import run as run_checks

    machine = [] if args.no_machine else _machine_checks()
    here, there = await asyncio.gather(run_checks(machine), _of_place(args))
    return ({MACHINE: here} if here else {}) | there


async def _of_place(args: argparse.Namespace) -> "dict[str, Sequence[Finding]]":
    from yaie.cli.advice.checking import installation, workloads
    from yaie.cli.advice.checking.report import run as run_checks
    from yaie.cli.advice.checking.report import skip

    if args.no_cluster:
        return {}
    try:
        async with reach(args) as place:
            title = place.name[:1].upper() + place.name[1:]
            checks = workloads.checks(place, args.namespace or place.namespace)
            if place.is_local:
                return {title: await run_checks(checks)}
            (server,) = await run_checks([installation.first(place)])
            if server.message.startswith(SILENT):
                return {title: [server]}
            return {title: [server, *await run_checks([*installation.checks(place), *checks])]}
    except UnavailableError as error:
        if args.no_machine or args.state_dir or args.kubeconfig or args.context:
            raise
        return {"Cluster": [skip("cluster", error.message)]}


def _machine_checks() -> "list[Check]":
    from yaie.cli.advice.checking import machine, software
    from yaie.cli.advice.checking.report import here

    return [
        here("Python", software.python),
        here("packages", software.packages),
        here("torch", software.torch),
        here("GPUs", software.gpus),
        here("memory", machine.memory),
        here("/dev/shm", machine.shared_memory),  # noqa: S108 - its name
        here("open files", machine.open_files),
        here("model cache", machine.cache),
        here("hub", machine.hub),
        here("port", machine.port),
    ]
