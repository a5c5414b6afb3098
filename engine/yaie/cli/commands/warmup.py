"""`yaie warmup MODEL`: compile a model's kernels into Triton's cache before a server starts."""

import argparse
import os
import time
from typing import TYPE_CHECKING

from yaie.cli import foreign_flags, serve_flags
from yaie_api.errors import InvalidRequestError

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers

DESCRIPTION = """\
Compile the kernels that MODEL needs on this machine's GPU, so that servers start in seconds. Only
the model's configuration is read: its weights may be elsewhere yet. Kernels go to Triton's cache:
the folder that TRITON_CACHE_DIR names, or ~/.triton/cache; keep it on a volume to share it between
containers. They fit this kind of GPU and these versions of yaie, Triton and the driver. Use the
flags that the server will have.
"""


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "warmup",
        help="compile a model's kernels ahead of the first server",
        description=DESCRIPTION,
    )
    parser.add_argument("model", metavar="MODEL", help="as in `yaie serve`")
    serve_flags.add_engine_flags(parser.add_argument_group("engine"))
    serve_flags.add_log_flags(parser.add_argument_group("logs"), level="warning")
    foreign_flags.add(parser)
    parser.set_defaults(run=run, served_model_name=())


def run(args: argparse.Namespace) -> int:
    """Compile every kernel of a model and return the exit status.

    Raises:
        InvalidRequestError: there is no GPU here.

    """
    import msgspec
    import torch

    from yaie.cli.commands.serve import engine_config
    from yaie.logging import setup
    from yaie.runtime import phases
    from yaie.runtime.startup import factory

    setup(args.log_level, args.log_format)
    foreign_flags.log_notes(args, os.environ)
    if not torch.cuda.is_available():
        raise InvalidRequestError("There is no GPU here; on a CPU no kernel has to be compiled.")
    phases.declare_compilations()
    started = time.monotonic()

    def stage(name: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {name}", flush=True)

    factory.create(msgspec.structs.replace(engine_config(args), load_format="dummy"), stage)
    stage(f"{phases.n_compiled()} kernels are ready")
    return 0
