"""Models from the hub: what is fetched, what is refused, and what the user is told."""

import contextlib
import errno
import json
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from engine.checkpoint.fake_hub import TOKEN, Hub, serving
from yaie import LLM, SamplingParams
from yaie.checkpoint import hub as downloads
from yaie.checkpoint import source
from yaie.runtime.process import engine_process
from yaie_api.engine_config import EngineConfig
from yaie_api.errors import InvalidRequestError, UnavailableError

NAME = "org/tiny"
SETTINGS = {
    "config.json": json.dumps({"model_type": "llama"}).encode(),
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
}
FILES = SETTINGS | {"model.safetensors": bytes(range(256)) * 4096}
UNWANTED = {
    "pytorch_model.bin": b"\x80\x04.",
    "optimizer.pt": b"\x80\x04.",
    "consolidated.safetensors": b"again",
    "onnx/model.safetensors": b"again",
    "original/params.json": b"{}",
    "modeling.py": b"raise SystemExit",
    "README.md": b"# Tiny",
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving(Hub()) as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        template = running.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield running


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def refusal(name: str, revision: str | None = None) -> str:
    """What the user reads; never a path, an address or the name of a library."""
    with pytest.raises((InvalidRequestError, UnavailableError)) as caught:
        source.resolve(name, revision)
    said = caught.value.message
    assert not any(word in said for word in ("/tmp", "127.0.0.1", "http:", "huggingface_hub"))
    return said


def test_a_model_of_the_hub_generates_like_its_local_folder(hub: Hub) -> None:
    local = source.resolve("builtin://yaie-demo")
    hub.push(NAME, {path.name: path.read_bytes() for path in local.iterdir() if path.is_file()})
    greedy = SamplingParams(temperature=0.0, max_tokens=8)
    question = [{"role": "user", "content": "What is Kubernetes?"}]
    answers = []
    for model in (f"hf://{NAME}", str(local)):
        llm = LLM(model, device="cpu", kv_cache_tokens=256)
        answers.append(llm.chat(question, greedy)[0].outputs[0].text)
    assert answers[0] == answers[1]
    assert "Kubernetes" in answers[0]


def test_only_settings_and_the_weights_that_are_read_are_fetched(hub: Hub) -> None:
    hub.push(NAME, FILES | UNWANTED)
    folder = source.resolve(f"hf://{NAME}")
    assert names(folder) == set(FILES)
    assert hub.fetched() == set(FILES)
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]


def test_the_weights_are_those_that_the_index_names(hub: Hub) -> None:
    index = {"weight_map": {"a": "part-1.safetensors", "b": "part-2.safetensors"}}
    parts = {"part-1.safetensors": b"1", "part-2.safetensors": b"2"}
    hub.push(NAME, FILES | parts | {source.WEIGHTS_INDEX: json.dumps(index).encode()})
    assert names(source.resolve(f"hf://{NAME}")) == {*SETTINGS, *parts, source.WEIGHTS_INDEX}


def test_the_pooling_of_an_embedding_model_is_fetched_and_followed(hub: Hub) -> None:
    local = source.resolve("builtin://yaie-demo")
    demo = {path.name: path.read_bytes() for path in local.iterdir() if path.is_file()}
    modules = [{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    own = {
        "modules.json": json.dumps(modules).encode(),
        "1_Pooling/config.json": b'{"pooling_mode_mean_tokens": true}',
    }
    hub.push(NAME, demo | UNWANTED | own)
    embedder = LLM(f"hf://{NAME}", device="cpu", kv_cache_tokens=256)
    assert hub.fetched() & {*UNWANTED, *own} == set(own)
    assert embedder.info.pooling == "mean"


def test_random_weights_need_no_download_of_weights(hub: Hub) -> None:
    hub.push(NAME, FILES)
    assert names(source.resolve(f"hf://{NAME}", with_weights=False)) == set(SETTINGS)


@pytest.mark.parametrize("revision", ["v1", "refs/pr/3", "commit"])
def test_a_revision_in_the_name_or_beside_it_is_the_one_that_is_read(
    hub: Hub, revision: str
) -> None:
    old = FILES | {"model.safetensors": b"old"}
    commit = hub.push(NAME, old, ref="v1" if revision == "commit" else revision)
    hub.push(NAME, FILES)
    revision = commit if revision == "commit" else revision
    for folder in (
        source.resolve(f"hf://{NAME}@{revision}"),
        source.resolve(f"hf://{NAME}", revision),
        source.resolve(f"hf://{NAME}@{revision}", revision),
    ):
        assert folder.name == commit
        assert (folder / "model.safetensors").read_bytes() == b"old"


def test_two_revisions_at_once_are_refused(hub: Hub) -> None:
    assert "Name one" in refusal(f"hf://{NAME}@v1", "v2")


def test_a_push_between_settings_and_weights_mixes_nothing(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = hub.push(NAME, FILES)
    read_config = source.read_config

    def push_meanwhile(folder: Path) -> dict[str, object]:
        hub.push(NAME, FILES | {"model.safetensors": b"newer"})
        return read_config(folder)

    monkeypatch.setattr(source, "read_config", push_meanwhile)
    folder = source.resolve(f"hf://{NAME}")
    assert folder.name == first
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]


def test_a_broken_download_goes_on_where_it_stopped(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 2**16)  # a started chunk is lost
    hub.push(NAME, FILES)
    hub.break_once.add("model.safetensors")
    folder = source.resolve(f"hf://{NAME}")
    size = len(FILES["model.safetensors"])
    assert hub.ranges("model.safetensors") == [None, f"bytes={size // 2}-"]
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]


def test_after_a_reset_the_user_can_try_again_and_keeps_what_was_finished(hub: Hub) -> None:
    hub.push(NAME, FILES)
    hub.break_once.add("model.safetensors")
    hub.reset = True
    with pytest.raises(UnavailableError, match="try again; finished files are kept"):
        source.resolve(f"hf://{NAME}")
    hub.asked.clear()
    folder = source.resolve(f"hf://{NAME}")
    assert hub.fetched() == {"model.safetensors"}
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]


def test_the_second_start_fetches_nothing_again(hub: Hub) -> None:
    hub.push(NAME, FILES)
    source.resolve(f"hf://{NAME}")
    hub.asked.clear()
    source.resolve(f"hf://{NAME}")
    assert hub.fetched() == set()


def test_an_unknown_repository_says_what_to_do(hub: Hub) -> None:
    said = refusal("hf://org/nothing")
    assert said.startswith("There is no model org/nothing on the hub, or it is private.")
    assert "HF_TOKEN" in said


def test_an_unknown_revision_says_which(hub: Hub) -> None:
    hub.push(NAME, FILES)
    assert refusal(f"hf://{NAME}@v9").startswith("org/tiny has no revision 'v9'.")


def test_a_gated_repository_says_what_to_do_and_opens_with_a_token(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.push(NAME, FILES)
    hub.repositories[NAME].gated = True
    said = refusal(f"hf://{NAME}")
    assert "is gated. Accept its terms" in said
    assert "HF_TOKEN" in said
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert names(source.resolve(f"hf://{NAME}")) == set(FILES)


def test_a_bad_token_is_named_as_the_reason(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.push(NAME, FILES)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    said = refusal(f"hf://{NAME}")
    assert said.startswith("The hub does not accept the token in HF_TOKEN.")
    assert "hf_wrong" not in said


@pytest.mark.parametrize("status", [429, 503])
def test_a_hub_that_is_not_well_is_worth_another_try(hub: Hub, status: int) -> None:
    hub.broken_status = status
    with pytest.raises(UnavailableError, match=f"status {status}.*Try again later"):
        source.resolve(f"hf://{NAME}")


def test_a_hub_that_cannot_be_reached_is_worth_another_try(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(UnavailableError, match="cannot be reached"):
        source.resolve(f"hf://{NAME}")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_full_or_closed_disk_is_named_without_its_path(number: int) -> None:
    error = OSError(number, os.strerror(number), "/var/secret/blob")
    said = downloads.explain(error, NAME, None)
    assert isinstance(said, InvalidRequestError)
    assert os.strerror(number) in said.message
    assert "/var" not in said.message


def test_a_repository_with_pickled_weights_only_is_refused(hub: Hub) -> None:
    hub.push(NAME, SETTINGS | {"pytorch_model.bin": b"\x80\x04."})
    assert "pickled weights only" in refusal(f"hf://{NAME}")
    assert hub.fetched() == set(SETTINGS)


def test_a_repository_without_weights_is_refused(hub: Hub) -> None:
    hub.push(NAME, SETTINGS)
    assert "no *.safetensors" in refusal(f"hf://{NAME}")


def test_code_in_a_repository_is_refused_before_its_weights_are_fetched(hub: Hub) -> None:
    config = json.dumps({"auto_map": {"AutoModel": "modeling.Model"}}).encode()
    hub.push(NAME, FILES | UNWANTED | {"config.json": config})
    assert "auto_map" in refusal(f"hf://{NAME}")
    assert hub.fetched() == set(SETTINGS)


@pytest.mark.parametrize(
    ("tokenizer", "length", "told"),
    [
        (None, 4097, "4096 positions"),
        (b"version https:", None, "tokenizer.json cannot be"),
    ],
    ids=["length", "tokenizer"],
)
def test_what_the_settings_show_is_refused_before_the_weights_are_fetched(
    hub: Hub, tokenizer: bytes | None, length: int | None, told: str
) -> None:
    demo = source.BUILTIN / "yaie-demo"
    files = {path.name: path.read_bytes() for path in demo.iterdir() if path.is_file()}
    hub.push(NAME, files | ({"tokenizer.json": tokenizer} if tokenizer else {}))
    config = EngineConfig(model=f"hf://{NAME}", device="cpu", max_model_len=length)
    with pytest.raises(InvalidRequestError, match=told):
        engine_process.check(config)
    assert "model.safetensors" not in hub.fetched()


def test_code_of_a_known_model_is_not_fetched(hub: Hub) -> None:
    config = {"architectures": ["Phi3ForCausalLM"], "auto_map": {"AutoModel": "modeling.Model"}}
    hub.push(NAME, FILES | UNWANTED | {"config.json": json.dumps(config).encode()})
    source.resolve(f"hf://{NAME}")
    assert hub.fetched() == set(FILES)


def test_offline_reads_a_complete_cached_copy(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.push(NAME, FILES)
    online = source.resolve(f"hf://{NAME}")
    hub.asked.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert source.resolve(f"hf://{NAME}") == online
    assert hub.asked == []


def test_offline_without_a_complete_copy_says_what_to_do(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.push(NAME, FILES)
    source.resolve(f"hf://{NAME}", with_weights=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for name in (f"hf://{NAME}", "hf://org/other"):
        assert "HF_HUB_OFFLINE" in refusal(name)


@pytest.mark.parametrize(
    "name", ["hf://name", "hf://org/name/more", "hf://../name", "hf://org/", "hf://org/name@"]
)
def test_a_malformed_name_is_refused_without_asking_the_hub(hub: Hub, name: str) -> None:
    refusal(name)
    assert hub.asked == []


@pytest.mark.parametrize("revision", ["../../x", "a b", "-x", ""])
def test_a_malformed_revision_is_refused_without_asking_the_hub(hub: Hub, revision: str) -> None:
    assert "not a revision" in refusal(f"hf://{NAME}", revision)
    assert hub.asked == []


RESOLVE = """
import sys
from yaie.logging import setup
from yaie.checkpoint import source
from yaie.runtime.process import engine_process
from yaie_api.engine_config import EngineConfig
setup(log_format="text")
print(source.resolve(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("terminal", "told"),
    [(False, "downloading  model=org/tiny"), (True, " of 3.1 MB (")],
)
def test_progress_is_shown_and_addresses_nowhere(
    hub: Hub, tmp_path: Path, terminal: bool, told: str
) -> None:
    hub.pace_s = 0.4
    hub.push(NAME, FILES | {"model.safetensors": bytes(3 * 2**20)})
    environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    reader, writer = pty.openpty() if terminal else os.pipe()
    if terminal:
        termios.tcsetwinsize(writer, (24, 100))
    try:
        done = subprocess.run(
            [sys.executable, "-c", RESOLVE, f"hf://{NAME}"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=writer,
            check=True,
            timeout=60,
        )
    finally:
        os.close(writer)
    shown = read_all(reader)
    assert Path(done.stdout.decode().strip()).is_relative_to(tmp_path / "home")
    assert told in shown
    assert "fetching model" in shown
    assert "127.0.0.1" not in shown  # addresses of a hub may carry signatures


def read_all(descriptor: int) -> str:
    """Everything that was written; a terminal whose writers are gone raises instead of ending."""
    found = b""
    with os.fdopen(descriptor, "rb", buffering=0) as stream, contextlib.suppress(OSError):
        while part := stream.read(65536):
            found += part
    return found.decode()
