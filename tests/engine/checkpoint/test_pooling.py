"""How a checkpoint's own files say that embeddings are made."""

import json
from pathlib import Path
from typing import Any

import pytest

from yaie.checkpoint import pooling
from yaie_api.errors import InvalidRequestError

SWITCHES = {"word_embedding_dimension": 8, "pooling_mode_cls_token": False}
PARTS = ("Transformer", "Pooling", "Normalize")


def folder_with(folder: Path, config: Any, parts: tuple[str, ...] = PARTS) -> Path:
    modules = [{"idx": i, "type": f"sentence_transformers.models.{p}"} for i, p in enumerate(parts)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (SWITCHES, "last"),
        (SWITCHES | {"pooling_mode_mean_tokens": True}, "mean"),
        (SWITCHES | {"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": "lasttoken"}, "last"),
    ],
)
def test_the_pooling_is_the_checkpoint_s(
    tmp_path: Path, config: dict[str, Any], expected: str
) -> None:
    assert pooling.wanted(folder_with(tmp_path, config)) == expected


def test_a_checkpoint_that_says_nothing_pools_its_last_token(tmp_path: Path) -> None:
    assert pooling.wanted(tmp_path) == "last"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"pooling_mode_cls_token": True}, "cls_token"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_lasttoken": True}, "last, mean"),
        ({"pooling_mode": ["max"]}, "max"),
        ([1], "JSON object"),
    ],
)
def test_a_pooling_that_nobody_does_is_refused_by_name(
    tmp_path: Path, config: Any, said: str
) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        pooling.wanted(folder_with(tmp_path, config))


def test_a_dense_layer_after_the_pooling_is_refused(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, SWITCHES, (*PARTS, "Dense"))
    with pytest.raises(InvalidRequestError, match="further module, Dense"):
        pooling.wanted(folder)


@pytest.mark.parametrize("modules", ["{}", "[5]", "nonsense"])
def test_a_malformed_list_of_modules_is_refused(tmp_path: Path, modules: str) -> None:
    (tmp_path / "modules.json").write_text(modules)
    with pytest.raises(InvalidRequestError):
        pooling.wanted(tmp_path)
