"""`python -m yaie.checkpoint.tokenizer_convert FOLDER TARGET`: convert the vocabulary files in
FOLDER to TARGET, a tokenizer.json. `tokenizer_files` runs it; nothing from the folder is executed.
"""

import sys
from pathlib import Path

from yaie.checkpoint.tokenizer_files import NEEDS_PACKAGE

SENTENCEPIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
PACKAGES = ("sentencepiece", "protobuf", "tiktoken")


def main(folder: str, target: str) -> int:
    """Convert the tokenizer and return the exit status."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True
        )
    except (ImportError, ValueError) as error:
        missing = _missing(Path(folder), str(error))
        if not missing:
            raise
        print(missing)  # noqa: T201 - read by the parent process
        return NEEDS_PACKAGE
    tokenizer.backend_tokenizer.save(target)
    return 0


def _missing(folder: Path, text: str) -> str:
    """The packages that an error says are missing, as text.

    transformers reads a SentencePiece file as a tiktoken file if sentencepiece is not installed, so
    the error may name tiktoken instead.
    """
    named = [name for name in PACKAGES if name in text.lower()]
    if named and any((folder / name).is_file() for name in SENTENCEPIECE):
        return "sentencepiece and protobuf"
    return " and ".join(named)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
