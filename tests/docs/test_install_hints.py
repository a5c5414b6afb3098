"""yaie is in no package index: no text may send anybody there for it."""

import re

import pytest

from docs.pages import NAMES, ROOT

FROM_INDEX = re.compile(r"pip3? install (?:-\S+ )*[\"']?yaie\b|(?<!= \[\")\byaie\[")
SOURCES = [
    str(path.relative_to(ROOT))
    for folder in ("api", "engine", "kernels", "local", "operator", "router", "examples", "charts")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".html", ".md", ".txt", ".yaml")
]


def hints(text: str) -> list[str]:
    return FROM_INDEX.findall(text)


@pytest.mark.parametrize(
    "wrong", ["pip install 'yaie[all]'", "pip install yaie", "pip install -U yaie[engine]"]
)
def test_the_pattern_finds_what_would_fail(wrong: str) -> None:
    assert hints(wrong)


def test_no_source_and_no_page_installs_yaie_from_an_index() -> None:
    names = sorted({*map(str, NAMES), *SOURCES})
    assert len(names) > 300
    assert [name for name in names if hints((ROOT / name).read_text())] == []
