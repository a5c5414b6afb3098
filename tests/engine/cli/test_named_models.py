"""What a user may type as the name of a model, and the object that it becomes."""

from pathlib import Path

import pytest

from yaie.cli.commands.serve import batch_options, engine_config
from yaie.cli.local.named_models import named_models, object_name, source_of
from yaie.cli.main import build_parser
from yaie_api import names
from yaie_api.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("Qwen/Qwen3-0.6B", "hf://Qwen/Qwen3-0.6B"),
        ("Qwen/Qwen3-0.6B@v1.0", "hf://Qwen/Qwen3-0.6B@v1.0"),
        ("hf://Qwen/Qwen3-0.6B", "hf://Qwen/Qwen3-0.6B"),
        ("builtin://yaie-demo", "builtin://yaie-demo"),
    ],
)
def test_a_name_of_the_hub_needs_no_scheme(text: str, source: str) -> None:
    assert source_of(text) == source


def test_a_folder_that_exists_is_no_name_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "org" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert source_of("org/model") == "org/model"
    (loaded,) = named_models(["org/model"], "default", has_gpu=False)
    assert loaded.object["spec"]["model"]["source"] == f"file://{tmp_path}/org/model"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("qwen", "names of the hub have the form ORG/NAME"),
        ("./nowhere", "it is no folder here"),
        ("llama3:8b", "a name of Ollama's library"),
        ("model.gguf", "GGUF"),
    ],
)
def test_what_names_no_model_is_told_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        source_of(text)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("hf://Qwen/Qwen3-0.6B@v1", "qwen3-0-6b"),
        ("hf://org/01-ai_Yi", "m-01-ai-yi"),
        ("file:///models/My Model/", "my-model"),
        (f"hf://org/{'long-' * 20}", "long-long-long-long-long-long-long-long"),
    ],
)
def test_the_object_has_a_name_that_kubernetes_takes(source: str, name: str) -> None:
    assert object_name(source) == name
    assert len(name) <= names.MAX_NAME_LENGTH


def test_clients_may_use_the_name_that_the_user_typed() -> None:
    (loaded,) = named_models(["Qwen/Qwen3-0.6B"], "default", has_gpu=True)
    spec = loaded.object["spec"]
    assert spec["model"]["aliases"] == ["Qwen/Qwen3-0.6B", "Qwen3-0.6B"]
    assert spec["resources"] == {"gpu": {"count": 1}}


@pytest.mark.parametrize(
    ("model", "source", "served"),
    [
        ("Qwen/Qwen3-0.6B@v1", "hf://Qwen/Qwen3-0.6B@v1", ("Qwen/Qwen3-0.6B", "Qwen3-0.6B")),
        ("hf://Qwen/Qwen3-0.6B", "hf://Qwen/Qwen3-0.6B", ()),
        ("./folder", "./folder", ()),
        ("Qwen/Qwen3-0.6B --served-model-name mine", "hf://Qwen/Qwen3-0.6B", ("mine",)),
    ],
)
def test_serve_takes_a_name_of_the_hub_and_serves_it_under_that_name(
    model: str, source: str, served: tuple[str, ...]
) -> None:
    args = build_parser("serve").parse_args(["serve", *model.split()])
    assert engine_config(args).model == source
    assert batch_options(args).names == served


def test_the_built_in_model_leaves_the_gpu_to_others() -> None:
    (loaded,) = named_models(["builtin://yaie-demo"], "default", has_gpu=True)
    assert "resources" not in loaded.object["spec"]


def test_two_models_of_one_name_are_refused_and_one_that_is_named_twice_is_one() -> None:
    assert len(named_models(["a/m", "b/n", "a/m"], "default", has_gpu=False)) == 2
    with pytest.raises(InvalidRequestError, match="would both be inferencemodel/m"):
        named_models(["a/m", "b/m"], "default", has_gpu=False)
