"""Large forms are read in threads: who asks for little is answered meanwhile."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.server.scripted import App, running, says
from yaie.core.request import Grammar
from yaie.server.service import IN_THREAD_CHARACTERS
from yaie.text.grammar import schema
from yaie.text.tools import ToolChoice, ToolSpec, format_for

USER: Any = [{"role": "user", "content": "hello"}]
TERSE = "{% if tools %}<tool_call>{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"


def tools(count: int, properties: int) -> list[Any]:
    described = {
        f"p{i}": {"type": "string", "description": "what it is"} for i in range(properties)
    }
    parameters = {"type": "object", "properties": described}
    return [
        {"type": "function", "function": {"name": f"tool_{i}", "parameters": parameters}}
        for i in range(count)
    ]


async def ask(app: App, **fields: Any) -> int:
    body = {"model": "stub", "messages": USER, **fields}
    return (await app.post("/v1/chat/completions", body)).status_code


@pytest.mark.parametrize("field", ["tools", "response_format"])
async def test_a_small_request_is_answered_while_a_large_form_is_read(
    field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The large form is read only once the small request has been answered."""
    answered, real = threading.Event(), schema.check_schema
    large = {
        "tools": {"tools": tools(8, 100), "tool_choice": "required"},
        "response_format": {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"schema": {"enum": ["x" * IN_THREAD_CHARACTERS]}},
            }
        },
    }[field]

    def waiting(*args: Any, **named: Any) -> Any:
        assert answered.wait(20), "the event loop was blocked"
        return real(*args, **named)

    for module in ("grammar.forms", "tools.formats.base"):
        monkeypatch.setattr(f"yaie.text.{module}.check_schema", waiting)
    async with running(tmp_path, says("ok"), template=TERSE) as app:
        asked = asyncio.create_task(ask(app, **large))
        await asyncio.sleep(0.05)
        assert await ask(app) == 200
        assert not asked.done()
        answered.set()
        assert await asked == 200
        grammars = [request.sampling.grammar for request in app.engine.requests]
    assert grammars[0] is None
    assert isinstance(grammars[1], Grammar)


def test_every_further_property_costs_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """128 tools of 200 properties: a word that only describes is looked up once."""
    looked_up, real = [], schema.difflib.get_close_matches

    def counting(word: str, *args: Any, **named: Any) -> list[str]:
        looked_up.append(word)
        return real(word, *args, **named)

    monkeypatch.setattr(schema.difflib, "get_close_matches", counting)
    schema._nearest.cache_clear()
    specs = [
        ToolSpec(one["function"]["name"], parameters=one["function"]["parameters"])
        for one in tools(128, 200)
    ]
    grammar = format_for(None).grammar(specs, ToolChoice("required"), parallel=True)
    assert grammar is not None
    assert grammar.text.count('"p199"') == 128
    assert looked_up == ["description"]
