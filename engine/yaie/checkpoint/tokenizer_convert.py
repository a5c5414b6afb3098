"""`python -m yaie.checkpoint.tokenizer_convert FOLDER TARGET`: write TARGET, a tokenizer.json, from
the vocabulary files in FOLDER. Run by `tokenizer_files`; nothing from the folder is executed.
"""

import sys
from pathlib import Path

from yaie.checkpoint.tokenizer_files import NEEDS_PACKAGE

SENTENCEPIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
PACKAGES = ("sentencepiece", "protobuf", "tiktoken")


def main(folder: str, target: str) -> int:
    """Convert; returns the exit status."""
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
    """Which packages an error asks for. A sentencepiece file that cannot be read for want of its
    own package is tried as a tiktoken one, and that error is the one that arrives here.
    """
    named = [name for name in PACKAGES if name in text.lower()]
    if named and any((folder / name).is_file() for name in SENTENCEPIECE):
        return "sentencepiece and protobuf"
    return " and ".join(named)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
