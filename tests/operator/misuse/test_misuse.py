"""What users do wrong is refused with a useful message, or does no harm."""

import re
from pathlib import Path
from typing import Any

import pytest

from api.crd_cases import Case
from api.hostile_cases import HOSTILE, args, env
from yaie_api.resource import crd
from yaie_local.apiserver.admission import Admission
from yaie_operator.cluster import Object, RefusedError
from yaie_operator.config import OperatorConfig
from yaie_operator.model import ServedModel
from yaie_operator.resources import model_objects

ROOT = Path(__file__).parents[3]
SHELLS = re.compile(r"shell=True|os\.(system|popen)|subprocess_shell|[\"']-c[\"']|/bin/(ba)?sh")


@pytest.fixture(scope="module")
def admission() -> Admission:
    return Admission(crd.render())


def container(admitted: Object) -> Any:
    metadata = {**admitted["metadata"], "uid": "u"}
    served = ServedModel.parse({**admitted, "metadata": metadata})
    deployment = model_objects(served, OperatorConfig(), deployment=None)[-1]
    return deployment["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.title)
def test_a_bad_spec_is_refused_in_words_or_starts_an_engine_without_a_shell(
    case: Case, admission: Admission
) -> None:
    if case.refused is None:
        made = container(admission.admit(case.object("ns"), None))
        assert made["command"] == ["yaie", "serve"]
        assert all(isinstance(word, str) for word in made["args"])
        return
    with pytest.raises(RefusedError) as refusal:
        admission.admit(case.object("ns"), None)
    assert case.refused in str(refusal.value)
    assert "should match" not in str(refusal.value)  # a pattern tells nobody what to write


def test_there_are_many_bad_specs_and_most_are_refused() -> None:
    assert len({case.title for case in HOSTILE}) == len(HOSTILE) > 100
    assert sum(case.refused is not None for case in HOSTILE) > 80


def test_what_a_shell_would_run_is_one_argument_and_one_value(admission: Admission) -> None:
    word = "; reboot $(reboot) `reboot`"
    given = Case("", args("--seed", word)).object("ns")
    assert container(admission.admit(given, None))["args"][-2:] == ["--seed", word]
    given = Case("", env("A", word)).object("ns")
    variables = container(admission.admit(given, None))["env"]
    assert variables[-1] == {"name": "A", "value": word}


def test_a_message_of_any_length_is_bounded(admission: Admission) -> None:
    case = Case("", {"model": {"source": "hf://a/b"}, "resources": {"memory": "9" * 10**6}})
    with pytest.raises(RefusedError) as refusal:
        admission.admit(case.object("ns"), None)
    assert len(str(refusal.value)) < 1000


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"resources": {"gpu": {"count": 1, "type": "NVIDIA-L4"}}}, "remove type"),
        ({"podTemplate": {"spec": {"volumes": [{"name": "a"}]}}}, "write the paths in engine.args"),
        ({"podTemplate": {"spec": {"dnsPolicy": "Default"}}}, "this machine's names"),
    ],
)
def test_what_one_machine_cannot_do_is_refused_by_yaie_up_alone(
    given: dict[str, Any], told: str, admission: Admission
) -> None:
    case = Case("", {"model": {"source": "builtin://yaie-demo"}, **given}).object("ns")
    admission.admit(case, None)
    with pytest.raises(RefusedError, match=told):
        Admission(crd.render(local=True)).admit(case, None)


@pytest.mark.parametrize(
    "root", ["operator/yaie_operator", "local/yaie_local", "router/yaie_router"]
)
def test_no_code_that_reads_a_spec_knows_a_shell(root: str) -> None:
    for path in (ROOT / root).rglob("*.py"):
        assert not SHELLS.search(path.read_text()), path
