"""Dense families against transformers: logits within the ratio gate, greedy tokens identical."""

from functools import cache
from pathlib import Path

import pytest

from engine.models.hand import load_runner
from engine.models.journey import PAGES, SEQUENCES, Traveller, travel
from engine.models.oracle import check, save
from engine.models.variants import DENSE


@pytest.fixture(scope="module")
def journeys(tmp_path_factory: pytest.TempPathFactory) -> "Journeys":
    return Journeys(tmp_path_factory.mktemp("variants"))


class Journeys:
    """One run of each variant, shared by the tests of its sequences."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.of = cache(self._run)

    def _run(self, variant: str) -> dict[str, Traveller]:
        folder = save(variant, self.folder / variant)
        return travel(variant, load_runner(folder, pages=PAGES))


@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize("variant", sorted(DENSE))
def test_a_sequence_matches(journeys: Journeys, variant: str, sequence: str) -> None:
    one = journeys.of(variant)[sequence]
    check(variant, one.start, one.ids, one.logits)
