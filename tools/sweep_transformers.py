"""Every causal language model that the installed transformers registers, tiny, through the engine.

    tools/sweep_transformers.py                    all types, into the table of docs/models.md
    tools/sweep_transformers.py llama bloom        these only

A process per type with a time limit, forked from one that has imported everything: a type that
hangs or dies is a finding, not the end. The table is written after each type. The exit status is 1
when a type was served wrong, or neither served nor refused.
"""

import argparse
import multiprocessing
import os
import sys
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

ROOT = Path(__file__).parent.parent
PARTS = [str(ROOT / part) for part in ("tests", "api", "engine", "kernels")]
"""The code beside this file, whatever is installed: the processes below start from these."""
sys.path[:0] = PARTS
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["PYTHONPATH"] = os.pathsep.join(PARTS)
CASE = "engine.models.transformers_case"
PRELOADED = [CASE, "transformers.generation.utils", "transformers.models.llama.modeling_llama"]
DOCUMENT = ROOT / "docs" / "models.md"
BEGIN, END = "<!-- sweep: begin -->", "<!-- sweep: end -->"
FAILED = {"wrong", "crashed", "slow"}
LIMIT_S = 120
Row = dict[str, str]
COLUMNS = ("kind", "outcome", "implementation", "reason")


def main() -> int:
    """Sweep; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("types", nargs="*", help="model types; default: all")
    args = parser.parse_args()
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(PRELOADED)
    version, known = registered()
    table = {row["kind"]: row for row in written() if row["kind"] in known}
    types = args.types or known
    for number, kind in enumerate(types, start=1):
        table[kind] = judge(processes, kind)
        print(f"{number:3}/{len(types)}", *cells(table[kind]), sep="  ", flush=True)
        write(version, [table[name] for name in known if name in table])
    print(counts(list(table.values())))
    return 1 if any(table[kind]["outcome"] in FAILED for kind in types) else 0


def registered() -> tuple[str, list[str]]:
    """The library's version, and the types of its table."""
    import transformers
    from transformers.models.auto import modeling_auto as auto

    return transformers.__version__, sorted(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def judge(processes: multiprocessing.context.ForkServerContext, kind: str) -> Row:
    """The outcome of one type, in a process of its own."""
    receiver, sender = processes.Pipe(duplex=False)
    process = processes.Process(target=work, args=(kind, sender))
    process.start()
    sender.close()
    row = failed(kind, "slow", f"not finished after {LIMIT_S} s")
    try:
        if receiver.poll(LIMIT_S):
            row = receiver.recv()
    except EOFError:
        process.join()
        row = failed(kind, "crashed", f"exit status {process.exitcode}")
    process.kill()
    process.join()
    return row


def work(kind: str, sender: Connection) -> None:
    """In the type's process."""
    from importlib import import_module

    try:
        sender.send(import_module(CASE).judge(kind)._asdict())
    except Exception as error:  # noqa: BLE001 - whatever it raises is this type's outcome
        sender.send(failed(kind, "crashed", f"{type(error).__name__}: {error}"[:300]))


def failed(kind: str, outcome: str, reason: str) -> Row:
    """A row for a type whose process did not report."""
    return {"kind": kind, "outcome": outcome, "implementation": "", "reason": reason}


def cells(row: Row) -> tuple[str, str, str, str]:
    """The columns of the table."""
    reason = " ".join(row["reason"].replace("|", "/").split())
    return row["kind"], row["outcome"], row["implementation"], reason


def counts(rows: list[Row]) -> str:
    """How many types came out how."""
    found = Counter(f"{row['outcome']} {row['implementation']}".strip() for row in rows)
    return ", ".join(f"{number} {name}" for name, number in found.most_common())


def written() -> list[Row]:
    """The rows of the table as it stands."""
    _, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    lines = [line for line in rest.partition(END)[0].splitlines() if line.startswith("| ")]
    return [
        dict(zip(COLUMNS, (cell.strip() for cell in line.strip("|").split("|")), strict=True))
        for line in lines[1:]
    ]


def write(version: str, rows: list[Row]) -> None:
    """Replace the generated part of the document."""
    lines = [
        BEGIN,
        f"transformers {version}, {len(rows)} types: {counts(rows)}.",
        "",
        "| type | outcome | runs as | remark |",
        "|---|---|---|---|",
        *(f"| {' | '.join(cells(row))} |" for row in rows),
        END,
    ]
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(before + "\n".join(lines) + after, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
