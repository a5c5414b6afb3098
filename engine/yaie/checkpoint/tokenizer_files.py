"""Converts the tokenizer files of folders without tokenizer.json, once per model.

The result is stored in the user's cache folder under the hash of its inputs. A separate process
converts, because the conversion needs transformers, which neither the HTTP process nor the engine
of a native model imports.
"""

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from yaie.checkpoint import source
from yaie_api.errors import InvalidRequestError
from yaie_api.logs import fields

log = logging.getLogger(__name__)

TOKENIZER = "tokenizer.json"
VOCABULARIES = (
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocab.json",
    "vocab.txt",
)
SETTINGS = (
    "added_tokens.json",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer_config.json",
)
FORMAT = "1"
"""Part of the key; increment it when the conversion changes."""
LIMIT_S = 300.0
NEEDS_PACKAGE = 3
"""Exit status of the converter if a package is missing; it prints the package's name."""


def folder_of(folder: Path, tokenizer: str | None) -> Path:
    """The folder with tokenizer.json: that of the model or of `tokenizer`, or a converted one.

    A folder without any tokenizer is returned unchanged, because prompts of token ids still work.

    Raises:
        InvalidRequestError: the vocabulary cannot be converted, or the folder does not exist.

    """
    if tokenizer is not None:
        folder = source.resolve(tokenizer, with_weights=False)
    if (folder / TOKENIZER).is_file():
        return folder
    if not any((folder / name).is_file() for name in VOCABULARIES):
        if (folder / "tekken.json").is_file():
            raise _refused("it has a tekken.json only")
        return folder
    return _converted(folder)


def cache_folder() -> Path:
    """The folder of converted tokenizers."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "yaie" / "tokenizers"


def _converted(folder: Path) -> Path:
    target = cache_folder() / _key(folder)
    if (target / TOKENIZER).is_file():
        return target
    log.info("converting the tokenizer", extra=fields(folder=folder.name))
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        for name in SETTINGS:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, made / name)
        _convert(folder, made / TOKENIZER)
        try:
            made.rename(target)
        except OSError:  # another process may have created it meanwhile
            if not (target / TOKENIZER).is_file():
                raise
    return target


def _convert(folder: Path, target: Path) -> None:
    command = [sys.executable, "-m", "yaie.checkpoint.tokenizer_convert", str(folder), str(target)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=LIMIT_S, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise _refused(f"its conversion took longer than {LIMIT_S:.0f} s") from error
    if done.returncode == NEEDS_PACKAGE:
        raise _refused(f"its conversion needs {done.stdout.strip()}, which is not installed")
    if done.returncode:
        log.warning("tokenizer not converted", extra=fields(stderr=done.stderr[-2000:]))
        raise _refused("its files cannot be read")


def _key(folder: Path) -> str:
    """Hash of the names and contents of all files that the conversion reads."""
    digest = hashlib.sha256(FORMAT.encode())
    for name in sorted((*VOCABULARIES, *SETTINGS)):
        path = folder / name
        if path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(json.dumps([name, content]).encode())
    return digest.hexdigest()


def _refused(reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"The model's folder has no tokenizer.json, and {reason}. Add one, or name a folder that "
        "has one with --tokenizer.",
        param="tokenizer",
    )
