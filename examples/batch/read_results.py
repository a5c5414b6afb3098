"""The answers of a batch, one line each, in the order of the requests.

python examples/batch/read_results.py results.jsonl
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    path = _parser().parse_args().results
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        sys.exit(f"{path} cannot be read ({error.strerror}): run `yaie run-batch` first.")
    results = [json.loads(line) for line in lines]
    for result in results:
        print(f"{result['custom_id']}: {told(result)}")
    failed = sum(map(has_failed, results))
    print(f"{len(results) - failed} answered, {failed} failed")
    sys.exit(int(failed > 0))


def has_failed(result: dict[str, Any]) -> bool:
    """Whether the line could not be asked at all, or its answer is an error."""
    return result["response"] is None or result["response"]["status_code"] != 200


def told(result: dict[str, Any]) -> str:
    """An answer in words: its text, the size of its vectors, or what was wrong."""
    if result["response"] is None:
        return f"failed: {result['error']['message']}"
    body = result["response"]["body"]
    if has_failed(result):
        return f"failed: {body['error']['message']}"
    if "choices" in body:
        return str(body["choices"][0]["message"]["content"])
    return f"{len(body['data'])} x {len(body['data'][0]['embedding'])} numbers"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="what `yaie run-batch -o` wrote")
    return parser


if __name__ == "__main__":
    main()
