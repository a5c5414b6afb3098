"""What can be said of the examples without starting anything."""

from pathlib import Path

import pytest
import yaml

from yaie_api.resource import crd
from yaie_api.resource.model import InferenceModelSpec
from yaie_local.apiserver.admission import Admission

EXAMPLES = Path(__file__).parents[2] / "examples"
MODELS = list(yaml.safe_load_all((EXAMPLES / "two_models.yaml").read_text()))


@pytest.mark.parametrize("local", [False, True])
def test_both_models_are_admitted(local: bool) -> None:
    admission = Admission(crd.render(local=local))
    for model in MODELS:
        filled = admission.default(model)
        assert admission.violations(filled) == []
        InferenceModelSpec.parse(filled["spec"])


def test_the_index_lists_every_example() -> None:
    index = (EXAMPLES / "README.md").read_text()
    files = [path for path in EXAMPLES.rglob("*") if path.suffix in {".py", ".yaml", ".jsonl"}]
    assert len(files) == 8
    for path in files:
        assert f"({path.relative_to(EXAMPLES)})" in index
