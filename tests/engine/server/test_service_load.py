"""What a server learns and says when its model is loaded."""

from pathlib import Path

import msgspec
import pytest

from engine.text.vocabularies import CHATML, byte_level, write_model_folder
from yaie.config import ModelInfo
from yaie.server.engine.client import AsyncEngine
from yaie.server.metrics import EngineStatus, ServerMetrics
from yaie.server.options import ServiceOptions
from yaie.server.service import Service
from yaie_api.errors import InvalidRequestError

USER = [{"role": "user", "content": "hi"}]


def model(folder: Path) -> ModelInfo:
    return ModelInfo(
        served_model_name="stub", path=str(folder), architecture="Stub", parameters=1,
        weight_bytes=1, max_model_len=2048, vocab_size=byte_level().get_vocab_size(),
        eos_token_ids=(0,), kv_pages=100, page_size=16, device="cpu", dtype="float32",
    )  # fmt: skip


def service() -> Service:
    engine = AsyncEngine()
    status = EngineStatus(lambda: engine.stats, lambda: engine.restarts)
    return Service(engine, ServerMetrics(status), ServiceOptions())


async def test_a_model_without_a_template_is_warned_of_with_the_flag(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = service()
    await loaded.load(model(write_model_folder(tmp_path, None)))
    (record,) = caplog.records
    assert record.getMessage() == "no chat template: chats are refused"
    assert "--chat-template FILE" in str(vars(record))
    with pytest.raises(InvalidRequestError, match="--chat-template FILE"):
        loaded.tokenizer.encode_chat(USER)


async def test_others_are_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await service().load(model(write_model_folder(tmp_path / "chat", CHATML)))
    vectors = msgspec.structs.replace(
        model(write_model_folder(tmp_path / "embed", None)), tasks=("embed",)
    )
    await service().load(vectors)
    assert caplog.records == []
