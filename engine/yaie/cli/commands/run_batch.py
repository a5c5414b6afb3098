"""`yaie run-batch -i IN -o OUT --model MODEL`: answer an OpenAI batch file without a server."""

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from yaie.cli import foreign_flags, serve_flags, values

if TYPE_CHECKING:
    from yaie.cli.main import Subparsers

DESCRIPTION = """\
Answer every line of an OpenAI batch file. A line is
  {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": […]}}
and its answer is the line at the same place of the output:
  {"id": …, "custom_id": "1", "response": {"status_code": 200, "body": {…}}, "error": null}
A url is any path at which `yaie serve` takes requests: /v1/completions, /v1/embeddings,
/v1/responses, /v1/messages, /v1/score, /v1/rerank and others. No two lines may have the same
custom_id. A line that is no request is answered with an error that says why. The output file
appears when all lines are answered. Exit status: 0 all succeeded, 3 some lines failed (the output
says which), 1 nothing could be run.
"""
EXIT_SOME_FAILED = 3


def add_parser(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "run-batch", help="answer an OpenAI batch file", description=DESCRIPTION
    )
    flag = parser.add_argument
    flag("-i", "--input-file", type=Path, required=True, metavar="FILE", help="lines to answer")
    flag("-o", "--output-file", type=Path, required=True, metavar="FILE", help="where answers go")
    flag("--model", required=True, metavar="MODEL", help="as in `yaie serve`")
    flag(
        "--max-concurrent",
        type=values.positive,
        default=256,
        metavar="N",
        help="requests in work at once (default: %(default)s)",
    )
    flag("--no-progress", action="store_true", help="show no progress on standard error")
    answers = parser.add_argument_group("answers")
    serve_flags.add_name_flag(answers)
    serve_flags.add_answer_flags(answers)
    serve_flags.add_engine_flags(parser.add_argument_group("engine"))
    serve_flags.add_log_flags(parser.add_argument_group("logs"), level="warning")
    foreign_flags.add(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from yaie.cli.commands.serve import batch_options
    from yaie.logging import setup
    from yaie.server.batch.run import run_file

    setup(args.log_level, args.log_format)
    foreign_flags.log_notes(args, os.environ)
    # treat SIGTERM as Ctrl-C, so that no process is left behind
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    summary = run_file(
        batch_options(args),
        args.input_file,
        args.output_file,
        concurrency=args.max_concurrent,
        show_progress=not args.no_progress,
    )
    print(
        f"{summary.requests} requests, {summary.failed} failed, "
        f"{summary.completion_tokens} tokens → {args.output_file}",
        file=sys.stderr,
    )
    return EXIT_SOME_FAILED if summary.failed else 0
