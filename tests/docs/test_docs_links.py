"""Every link in the documentation leads somewhere, and every page is linked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import NAMES, PAGES, ROOT, anchors, links


def targets(page: Path) -> Iterator[tuple[Path, str]]:
    """File and anchor of each link within the repository."""
    for link in links(page):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            yield (page.parent / path).resolve() if path else page, anchor


@pytest.mark.parametrize("name", NAMES)
def test_links_and_anchors_exist(name: str) -> None:
    for path, anchor in targets(ROOT / name):
        assert path.exists(), f"{name} links to {path.relative_to(ROOT)}"
        assert not anchor or anchor in anchors(path), f"{name} links to #{anchor}"


def test_the_index_lists_every_page_of_docs() -> None:
    listed = {path for path, _ in targets(ROOT / "docs/README.md")}
    pages = {page for page in PAGES if (ROOT / "docs") in page.parents}
    assert pages - listed <= {ROOT / "docs/README.md"}
