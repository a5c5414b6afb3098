"""Loads the objects of the files that a user gives with `-f`."""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from yaie_api import names
from yaie_api.errors import InvalidRequestError

KINDS: Final = (names.KIND, "Secret", "ConfigMap")
"""Kinds that files may contain; the operator creates all other objects."""
DEFAULT_NAMESPACE: Final = "default"


@dataclass(frozen=True)
class Loaded:
    """One object and its position, as `FILE:LINE`."""

    where: str
    object: dict[str, Any]

    @property
    def name(self) -> str:
        """The name in kubectl's form, e.g. `inferencemodel/demo`."""
        return f"{self.object['kind'].lower()}/{self.object['metadata']['name']}"


def add_files_flag(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "-f",
        "--filename",
        nargs="+",
        action="extend",
        default=[],
        required=required,
        metavar="FILE",
        help="YAML files, or folders with *.yaml files; - reads standard input",
    )


def load(paths: Sequence[str], namespace: str | None) -> list[Loaded]:
    """Load all objects of the files, in order; all of them must belong to `namespace`. None: they
    may belong to any, and those that name none get none.

    Raises:
        InvalidRequestError: a file is invalid; the message has one line per problem: `FILE:LINE:
            field: problem`.

    """
    from yaie_api.resource.manifest import ManifestError
    from yaie_api.resource.manifest import load as parse

    found: list[Loaded] = []
    problems: list[str] = []
    for filename, text in _texts(paths):
        try:
            documents = parse(text, filename=filename, kinds=KINDS)
        except ManifestError as error:
            problems.append(str(error))
            continue
        for document in documents:
            loaded = _placed(document.object, f"{filename}:{document.line}", namespace)
            own = loaded.object["metadata"].get("namespace")
            if namespace is not None and own != namespace:
                problems.append(
                    f"{loaded.where}: metadata.namespace: {own!r} is not the namespace of this "
                    f"command; remove it, or write --namespace {own}"
                )
            found.append(loaded)
    if problems:
        raise InvalidRequestError("these files cannot be used:\n" + "\n".join(problems))
    return found


def standard_input() -> str:
    """The text on standard input.

    Raises:
        InvalidRequestError: it is not UTF-8 text.

    """
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequestError("standard input is not UTF-8 text") from error


def _placed(obj: Mapping[str, Any], where: str, namespace: str | None) -> Loaded:
    default = {} if namespace is None else {"namespace": namespace}
    meta = {**default, **(obj.get("metadata") or {})}
    return Loaded(where, {**obj, "metadata": meta})


def _texts(paths: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Yield names and contents of the files.

    Raises:
        InvalidRequestError: a file cannot be read.

    """
    for path in paths:
        if path == "-":
            yield "standard input", standard_input()
            continue
        for file in _files(Path(path)):
            try:
                yield str(file), file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidRequestError(f"cannot read {file}: {_reason(error)}") from error


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml"))
    if not found:
        raise InvalidRequestError(f"the folder {path} holds no .yaml file")
    return found


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"
