import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.crd_cases import CASES, Case
from yaie_api.engine_config import EngineConfig
from yaie_api.resource import crd
from yaie_api.resource.model import RESERVED_ARGS, InferenceModelSpec
from yaie_local.apiserver.admission import Admission

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_the_schema_and_its_rules_accept_or_refuse_with_a_message(case: Case) -> None:
    admission = Admission(crd.render())
    before = admission.default(case.object("ns", case.before)) if case.before is not None else None
    found = admission.violations(admission.default(case.object("ns")), before)
    if case.refused is None:
        assert found == []
    else:
        assert len(found) == 1
        assert case.refused in found[0]


@pytest.mark.parametrize("case", [c for c in CASES if c.refused is None], ids=lambda c: c.title)
def test_an_accepted_spec_parses_with_and_without_defaults(case: Case) -> None:
    filled = Admission(crd.render()).default(case.object("ns"))
    assert InferenceModelSpec.parse(filled["spec"]) == InferenceModelSpec.parse(case.spec)


def test_the_local_crd_takes_paths_and_the_cluster_crd_names_the_volume_instead() -> None:
    model = CASES[0].object("ns", {"model": {"source": "file:///models/a"}})
    assert Admission(crd.render(local=True)).violations(model) == []
    assert "write pvc://CLAIM/PATH" in Admission(crd.render()).violations(model)[0]


def test_the_stored_manifest_is_what_the_module_prints(capsys: pytest.CaptureFixture[str]) -> None:
    crd.main()
    assert (ROOT / "manifests/crd.yaml").read_text() == capsys.readouterr().out


def test_every_field_has_a_description_and_every_string_and_list_a_limit() -> None:
    for path, node in nodes(crd.root_schema()):
        if path in {"", ".metadata"}:
            continue
        is_value = path.endswith(("[]", "{}"))
        assert is_value or node.get("description"), f"{path} has no description"
        if node.get("type") == "string" and path not in {".apiVersion", ".kind"}:
            assert "maxLength" in node or "enum" in node, f"{path} has no maxLength"
        if node.get("type") == "array":
            assert "maxItems" in node, f"{path} has no maxItems"
        if "additionalProperties" in node:
            assert "maxProperties" in node, f"{path} has no maxProperties"


def test_kubectl_explain_tells_limits_and_defaults_of_every_field() -> None:
    said = {path: node.get("description", "") for path, node in nodes(crd.root_schema())}
    assert said[".spec.replicas"].endswith("\nFrom 0 to 1000. Default: 1.")
    assert said[".spec.engine.kvCache.memoryFraction"].endswith("From 0.05 to 0.98. Default: 0.9.")
    assert said[".spec.engine.env"].endswith("\nAt most 64 entries.")
    assert said[".spec.model.source"].endswith("\nFrom 1 to 512 characters.")
    for path, node in nodes(crd.root_schema()):
        if path.endswith(("[]", "{}")) or not node.get("description", "").strip():
            continue
        for bound in ("minimum", "maximum", "maxLength", "maxItems", "maxProperties"):
            refused = node["description"].startswith("Refused: ")
            assert refused or bound not in node or str(node[bound]) in node["description"], path


def test_the_crd_fits_into_the_annotation_that_kubectl_apply_keeps_of_it() -> None:
    assert len(json.dumps(crd.render())) < 220 * 1024


def test_every_rule_has_a_message() -> None:
    rules = [r for _, node in nodes(crd.root_schema()) for r in node.get(crd.CEL_KEY, ())]
    assert len(rules) > 25
    assert all(len(rule["message"]) > 20 for rule in rules)


def test_columns_and_scale_read_fields_that_exist() -> None:
    version = crd.render()["spec"]["versions"][0]
    known = {path for path, _ in nodes(crd.root_schema())}
    scale = version["subresources"]["scale"]
    assert {
        scale[k] for k in ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
    } < known
    paths = [c["jsonPath"].split("[?")[0] for c in version["additionalPrinterColumns"]]
    assert {p for p in paths if not p.startswith(".metadata")} < known


def test_engine_defaults_agree_with_the_engine_itself() -> None:
    spec, engine = InferenceModelSpec.parse({"model": {"source": "hf://a/b"}}).engine, EngineConfig
    config = engine(model="hf://a/b")
    assert spec.kv_cache.memory_fraction == config.gpu_memory_utilization
    assert spec.kv_cache.page_size == config.page_size
    assert spec.max_num_seqs == config.max_num_seqs
    assert spec.dtype == config.dtype


def test_each_reserved_flag_names_a_field_that_exists() -> None:
    known = {path.removeprefix(".spec.") for path, _ in nodes(crd.root_schema())}
    for instead in RESERVED_ARGS.values():
        word = instead.split()[0].rstrip(",")
        assert word == "nothing" or word in known, instead


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node of the schema with its JSON path; [] stands for items, {} for a map's values."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


def test_the_sample_is_admitted() -> None:
    model = yaml.safe_load((ROOT / "manifests/samples/demo.yaml").read_text())
    admission = Admission(crd.render())
    assert admission.violations(admission.default(model)) == []


def test_what_only_a_cluster_can_do_is_refused_under_yaie_up() -> None:
    local = Admission(crd.render(local=True))
    image = {"model": {"source": "oci://a/b:v1"}, "cache": {"mode": "image"}}
    claim = {"model": {"source": "hf://a/b"}, "cache": {"mode": "pvc", "claim": "own"}}
    for spec, said in ((image, "write hf://ORG/NAME"), (claim, "write cache.size")):
        assert said in local.violations(CASES[0].object("ns", spec))[0]
