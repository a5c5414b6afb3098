"""The reference pages say what the code does: they are written from it."""

import subprocess
import sys
from pathlib import Path

import pytest

from yaie.server.routes import ENDPOINTS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "api.md"


TOOLS = [
    "render_api.py",
    "render_conditions.py",
    "render_metrics.py",
    "render_model.py",
    "render_openapi.py",
    "render_settings.py",
]


@pytest.mark.parametrize("tool", TOOLS)
def test_the_page_is_what_the_code_says(tool: str) -> None:
    command = [sys.executable, str(ROOT / "tools" / tool), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"run `make manifests`\n{done.stderr}"


def test_every_path_and_field_is_on_the_page() -> None:
    text = PAGE.read_text()
    for endpoint in ENDPOINTS:
        assert all(f"`{path.replace(':path', '')}`" in text for path in endpoint.paths)
        if endpoint.body is not None:
            for name, field in endpoint.body.model_fields.items():
                assert f"| `{field.alias or name}` |" in text


@pytest.mark.parametrize("stale", ["a field without words", "words without a field"])
def test_a_field_and_its_words_come_and_go_together(
    stale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import render_api

    words = dict(render_api.WORDS)
    if stale == "a field without words":
        del words["seed"]
    else:
        words["no_such_field"] = "Nothing."
    monkeypatch.setattr(render_api, "WORDS", words)
    with pytest.raises(KeyError):
        render_api.page()
