"""Tokenizers of folders without tokenizer.json: converted once, kept by content, or refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from yaie.checkpoint import tokenizer_files
from yaie.checkpoint.tokenizer_files import folder_of
from yaie_api.errors import InvalidRequestError

MERGES = ["h e", "l l", "he ll", "Ġ w"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "yaie" / "tokenizers"


def bytes_as_characters() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes."""
    plain = [*range(ord("!"), ord("~") + 1), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(256 + i) for i in range(len(others))]


def write_gpt2(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    tokens = [*bytes_as_characters(), *(merge.replace(" ", "") for merge in MERGES), "<|end|>"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    files = {
        "vocab.json": json.dumps(vocabulary),
        "merges.txt": "\n".join(["#version: 0.2", *MERGES, ""]),
        "config.json": json.dumps({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}),
        "tokenizer_config.json": json.dumps(
            {
                "tokenizer_class": "GPT2Tokenizer",
                "eos_token": "<|end|>",
                "unk_token": "<|end|>",
                "bos_token": "<|end|>",
            }
        ),
        "chat_template.jinja": "{{ messages }}",
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_vocabulary_and_merges_become_a_tokenizer_once(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settings lie beside it; the second start converts nothing, in whatever folder."""
    made = folder_of(write_gpt2(tmp_path / "model"), None)
    assert made.parent == cache
    tokenizer = Tokenizer.from_file(str(made / "tokenizer.json"))
    encoding = tokenizer.encode("hello world<|end|>")
    assert encoding.tokens == ["hell", "o", "Ġw", "o", "r", "l", "d", "<|end|>"]
    assert tokenizer.decode(encoding.ids, skip_special_tokens=True) == "hello world"
    assert (made / "chat_template.jinja").read_text() == "{{ messages }}"
    assert [path.name for path in cache.iterdir()] == [made.name]

    monkeypatch.setattr(tokenizer_files, "_convert", None)
    assert folder_of(write_gpt2(tmp_path / "copy"), None) == made


def test_other_content_is_converted_anew(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(_folder: Path, target: Path) -> None:
        target.write_text("{}")

    monkeypatch.setattr(tokenizer_files, "_convert", convert)
    first = folder_of(write_gpt2(tmp_path / "model"), None)
    (tmp_path / "model" / "merges.txt").write_text("#version: 0.2\nh e\n")
    second = folder_of(tmp_path / "model", None)
    assert first != second
    assert {first, second} == set(cache.iterdir())


def test_a_conversion_that_breaks_off_leaves_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(_folder: Path, target: Path) -> None:
        target.write_text("half of")
        raise KeyboardInterrupt

    monkeypatch.setattr(tokenizer_files, "_convert", convert)
    with pytest.raises(KeyboardInterrupt):
        folder_of(write_gpt2(tmp_path / "model"), None)
    assert list(cache.iterdir()) == []


def test_a_folder_with_a_tokenizer_is_left_alone(tmp_path: Path, cache: Path) -> None:
    folder = write_gpt2(tmp_path / "model")
    (folder / "tokenizer.json").write_text("{}")
    assert folder_of(folder, None) == folder
    assert not cache.exists()


def test_another_folder_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    other = tmp_path / "other"
    other.mkdir()
    (other / "tokenizer.json").write_text("{}")
    assert folder_of(tmp_path / "model", str(other)) == other
    with pytest.raises(InvalidRequestError, match="no model folder"):
        folder_of(tmp_path / "model", str(tmp_path / "nowhere"))


def test_without_any_vocabulary_ids_still_work(tmp_path: Path) -> None:
    assert folder_of(tmp_path, None) == tmp_path


def test_what_cannot_be_converted_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "tekken.json").write_text("{}")
    with pytest.raises(InvalidRequestError, match=r"tekken\.json only.*--tokenizer"):
        folder_of(tmp_path, None)


def test_a_broken_vocabulary_is_refused_in_words(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "model")
    (folder / "vocab.json").write_text("not json")
    with pytest.raises(InvalidRequestError, match="cannot be read") as refused:
        folder_of(folder, None)
    assert str(tmp_path) not in refused.value.message
    assert refused.value.param == "tokenizer"


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when sentencepiece is not installed: the converter says so by its exit status."""
    folder = write_gpt2(tmp_path / "model")

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert command[:3] == [sys.executable, "-m", "yaie.checkpoint.tokenizer_convert"]
        status = tokenizer_files.NEEDS_PACKAGE
        return subprocess.CompletedProcess(command, status, "sentencepiece and protobuf\n", "")

    monkeypatch.setattr(tokenizer_files.subprocess, "run", run)
    with pytest.raises(InvalidRequestError, match="needs sentencepiece and protobuf"):
        folder_of(folder, None)
