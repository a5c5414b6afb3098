import base64
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes.local_objects import obj, pod
from yaie_local.kubelet.containers import ConfigError, Place, command, environment, expand
from yaie_operator.resources.engine import ENVIRONMENT

FOLDERS = {"v": Path("/state/v"), "w": Path("/state/w"), "tmp": Path("/state/tmp")}
PLACE = Place("127.1.2.3", FOLDERS, Path("/state/termination-log"))
SECRET = obj("Secret", "s", data={"k": base64.b64encode(b"hidden").decode()})
MAP = obj("ConfigMap", "m", data={"k": "shown"})


def lookup(kind: str, name: str) -> Any:
    return {("Secret", "s"): SECRET, ("ConfigMap", "m"): MAP}.get((kind, name))


def of(**container: Any) -> Any:
    return pod("p", container=container, pod=container.pop("pod", {}))


def env_of(*variables: dict[str, Any], **container: Any) -> dict[str, str]:
    return environment(of(env=list(variables), **container), PLACE, lookup, {})


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)/x", "1/x"),
        ("$(MISSING)", "$(MISSING)"),
        ("$$(A)", "$(A)"),
        ("$A ${A}", "$A ${A}"),
        ("$(A)$(A)", "11"),
    ],
)
def test_references_expand_as_in_kubernetes(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1"}) == expanded


def test_yaie_and_python_are_this_installations_own() -> None:
    assert command(of(command=["yaie", "serve"]), {}, PLACE) == [
        sys.executable, "-m", "yaie", "serve",
    ]  # fmt: skip
    assert command(of(command=["python", "-m", "x"]), {}, PLACE) == [sys.executable, "-m", "x"]
    assert command(of(command=["/bin/true"]), {}, PLACE) == ["/bin/true"]


def test_the_any_address_becomes_the_pods_own() -> None:
    args = ["--host", "0.0.0.0", "--bind=0.0.0.0", "--about=0.0.0.0/0"]
    found = command(of(command=["x"], args=args), {}, PLACE)
    assert found[1:] == ["--host", "127.1.2.3", "--bind=127.1.2.3", "--about=0.0.0.0/0"]


def test_paths_of_the_user_stay_as_written_below_any_mount() -> None:
    mounts = [{"name": "tmp", "mountPath": "/tmp"}, {"name": "v", "mountPath": "/models"}]
    args = ["file:///tmp/model", "--chat-template", "/tmp/a.jinja", "--download-dir=/models/x"]
    env = [{"name": "HF_HOME", "value": "/tmp/hf"}, {"name": "DATA", "value": "/models/data"}]
    made = of(command=["x"], args=args, env=env, volumeMounts=mounts)
    assert command(made, {}, PLACE)[1:] == args
    assert environment(made, PLACE, lookup, {}) == {"HF_HOME": "/tmp/hf", "DATA": "/models/data"}


def test_a_variable_of_the_operator_leads_into_the_volume_that_it_mounted() -> None:
    mounts = [{"name": "v", "mountPath": "/models", "subPath": "c"}]
    env = [{"name": "YAIE_MODEL_FOLDER", "value": "/models"}]
    made = of(command=["x"], args=["$(YAIE_MODEL_FOLDER)/llama"], env=env, volumeMounts=mounts)
    found = environment(made, PLACE, lookup, {})
    assert found == {"YAIE_MODEL_FOLDER": "/state/v/c"}
    assert command(made, found, PLACE)[1:] == ["/state/v/c/llama"]


def test_the_termination_log_is_a_file_of_the_pod() -> None:
    told = {"name": "YAIE_TERMINATION_LOG", "value": "/dev/termination-log"}
    assert env_of(told) == {"YAIE_TERMINATION_LOG": "/state/termination-log"}
    assert env_of() == {}


def test_a_container_without_a_command_says_why_it_needs_one() -> None:
    with pytest.raises(ConfigError, match="images are not used"):
        command(of(), {}, PLACE)


def test_variables_come_from_fields_secrets_and_maps() -> None:
    found = env_of(
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "M", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
        {"name": "URL", "value": "http://$(IP)/$(NAME)"},
    )
    assert found == {
        "NAME": "p", "IP": "127.1.2.3", "S": "hidden", "M": "shown", "URL": "http://127.1.2.3/p",
    }  # fmt: skip


def test_whole_maps_come_with_a_prefix_and_may_be_optional() -> None:
    sources = [
        {"secretRef": {"name": "s"}, "prefix": "P_"},
        {"configMapRef": {"name": "gone", "optional": True}},
    ]
    assert env_of(envFrom=sources) == {"P_k": "hidden"}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"secretKeyRef": {"name": "s", "key": "x"}}, 'no key "x" in Secret "s"'),
        ({"secretKeyRef": {"name": "t", "key": "x"}}, 'no Secret "t"'),
        ({"fieldRef": {"fieldPath": "status.phase"}}, r"fieldRef status\.phase"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "not supported"),
    ],
)
def test_what_is_missing_is_named(source: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        env_of({"name": "A", "valueFrom": source})


def test_an_optional_key_may_be_missing() -> None:
    reference = {"secretKeyRef": {"name": "t", "key": "x", "optional": True}}
    assert env_of({"name": "A", "valueFrom": reference}) == {}


def test_labels_and_annotations_are_fields() -> None:
    labelled = pod("p", metadata={"labels": {"a/b": "c"}}, container={"env": [
        {"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}},
        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['x']"}}},
    ]})  # fmt: skip
    assert environment(labelled, PLACE, lookup, {}) == {"L": "c", "A": ""}


def test_the_operators_caches_stay_the_users_own() -> None:
    """A model that was downloaded once must not be downloaded for each pod."""
    env = [{"name": name, "value": value} for name, value in ENVIRONMENT.items()]
    made = of(env=[*env, {"name": "OTHER", "value": "/cache/x"}])
    found = environment(made, PLACE, lookup, {"HF_HOME": "/home/u/hf"})
    assert found == {"HF_HOME": "/home/u/hf", "OTHER": "/cache/x"}


def test_a_sub_path_cannot_leave_its_volume() -> None:
    mounts = [{"name": "v", "mountPath": "/a", "subPath": "../x"}]
    with pytest.raises(ConfigError, match="leaves its volume"):
        env_of(volumeMounts=mounts)
