import pytest

from yaie_api.resource.manifest import ManifestError, load

GOOD = """\
# a comment
apiVersion: yaie.dev/v1alpha1
kind: InferenceModel
metadata:
  name: demo
spec:
  model:
    source: builtin://yaie-demo
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load(text, filename="model.yaml")
    return str(caught.value).splitlines()


def test_a_field_that_is_refused_by_name_says_what_to_write() -> None:
    text = (
        f"{GOOD}  podTemplate:\n    spec:\n      nodeSelector: {{a: b}}\n"
        "      volumes: [{name: a, hostPath: {path: /}}]\n  resources: {memory: 512m}\n"
    )
    labels, disk, memory = sorted(problems(text))
    assert ":11: spec.podTemplate.spec.nodeSelector: write spec.resources.nodeSelector" in labels
    assert (
        ":12: spec.podTemplate.spec.volumes[0].hostPath: a hostPath opens the node's disk" in disk
    )
    assert ":13: spec.resources.memory: write bytes with their unit: 16Gi or 512Mi" in memory


def test_a_file_of_several_models_is_read_in_order() -> None:
    documents = load(f"{GOOD}---\n{GOOD.replace('demo', 'other')}---\n", filename="model.yaml")
    assert [d.object["metadata"]["name"] for d in documents] == ["demo", "other"]
    assert [d.line for d in documents] == [2, 11]


def test_a_typo_names_the_file_the_line_the_field_and_the_right_word() -> None:
    text = GOOD.replace("  model:", "  modle:")
    assert problems(text)[1] == "model.yaml:7: spec.modle: unknown field; did you mean `model`?"


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("spec:", "spce:", "model.yaml:6: spce: unknown field; did you mean `spec`?"),
        ("  name:", "  nmae:", "model.yaml:5: metadata.nmae: unknown field; did you mean `name`?"),
        ("v1alpha1", "v1", "model.yaml:2: apiVersion: write yaie.dev/v1alpha1"),
        ("InferenceModel", "Pod", "model.yaml:3: kind: 'Pod' is not served here;"),
        ("source:", "path:", "model.yaml:8: spec.model.path: unknown field"),
        ("builtin://yaie-demo", "3", "model.yaml:8: spec.model.source: input should be a valid"),
        ("  name: demo\n", "  name: demo\n  name: other\n", "model.yaml:6: not YAML: `name` twice"),
        ("  model:", "  model: [", "not YAML"),
    ],
)
def test_each_mistake_is_found_at_its_line(before: str, after: str, problem: str) -> None:
    assert problem in "\n".join(problems(GOOD.replace(before, after)))


def test_every_mistake_of_every_document_is_told_at_once() -> None:
    bad = GOOD.replace("  model:", "  replicas: -1\n  suspend: maybe\n  model:")
    found = problems(f"{bad}---\n{bad}")
    assert [line.split(" ")[0] for line in found] == [
        "model.yaml:7:", "model.yaml:8:", "model.yaml:18:", "model.yaml:19:",
    ]  # fmt: skip


def test_a_mistake_inside_a_list_names_the_item() -> None:
    text = GOOD + "  engine:\n    env:\n    - name: A\n      value: '1'\n    - nam: B\n"
    assert "model.yaml:13: spec.engine.env[1].nam: unknown field; did you mean `name`?" in problems(
        text
    )


def test_a_missing_field_is_told_where_it_belongs() -> None:
    assert problems(GOOD.replace("    source: builtin://yaie-demo\n", "    aliases: [a]\n")) == [
        "model.yaml:7: spec.model.source: this field is required"
    ]


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n---\n"])
def test_an_empty_file_is_a_mistake(text: str) -> None:
    assert problems(text) == ["model.yaml:1: the file holds no object"]


def test_a_list_at_the_top_is_a_mistake() -> None:
    assert problems("- a\n")[0].startswith("model.yaml:1: an object is expected")


def test_what_kubectl_prints_can_be_read_again() -> None:
    text = GOOD.replace(
        "  name: demo\n",
        "  name: demo\n  namespace: chat\n  uid: a\n  resourceVersion: '1'\n  generation: 1\n"
        "  creationTimestamp: 2026-01-01T00:00:00Z\n  labels: {a: b}\n",
    )
    document = load(text + "status:\n  phase: Ready\n", filename="model.yaml")[0]
    assert document.object["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"


def test_other_kinds_pass_where_they_are_welcome() -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: hf}\n"
    kinds = ("InferenceModel", "Secret")
    assert load(secret, filename="s.yaml", kinds=kinds)[0].object["kind"] == "Secret"


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['true']\n",
        "a: !!python/name:os.system\n",
        "a: &x [*x]\n",
        "a: &a [1,1,1,1,1,1,1,1,1]\n"
        + "".join(
            f"{n}: &{n} [{','.join([f'*{b}'] * 9)}]\n" for b, n in ("ab", "bc", "cd", "de", "ef")
        ),
        "[" * 10_000,
        "? [1, 2]\n: 3\n",
    ],
    ids=["call", "name", "cycle", "bomb", "depth", "list key"],
)
def test_what_yaml_can_do_beyond_data_is_refused(text: str) -> None:
    assert "not YAML" in problems(text)[0]
