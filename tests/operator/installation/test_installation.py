"""What an administrator sets for the whole cluster is read once, whole, or refused by name."""

import json

import pytest

from yaie_operator.config import OperatorConfig
from yaie_operator.installation import NetworkSettings, PodSettings


def test_the_settings_come_as_json_in_the_words_of_kubernetes() -> None:
    pod = {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}]}
    peer = {"podSelector": {"matchLabels": {"app": "prometheus"}}, "namespaceSelector": {}}
    config = OperatorConfig.from_env(
        {
            "YAIE_ROUTER_POD": json.dumps(pod),
            "YAIE_NETWORK_POLICIES": json.dumps({"engineClients": [peer]}),
            "YAIE_IMAGE_PULL_SECRETS": "one, two",
        }
    )
    assert config.router_pod == PodSettings.parse(pod)
    assert config.network == NetworkSettings(engine_clients=(peer,))
    assert config.image_pull_secrets == ("one", "two")


def test_without_settings_no_policies_are_written_and_nothing_is_added() -> None:
    config = OperatorConfig.from_env({"YAIE_ROUTER_POD": "", "YAIE_NETWORK_POLICIES": ""})
    assert (config.network, config.router_pod) == (None, PodSettings())


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("YAIE_ROUTER_LIMITS", '{"timeout": 1}', "YAIE_ROUTER_LIMITS: timeout is unknown"),
        ("YAIE_ROUTER_LIMITS", '{"maxInFlight": 0}', "maxInFlight is 0; write a number above 0"),
        ("YAIE_ROUTER_LIMITS", '{"maxInFlight": 1.5}', "maxInFlight is 1.5; write a whole number"),
        ("YAIE_ROUTER_LIMITS", '{"bodyTimeoutSeconds": true}', "is True; write a number above 0"),
        ("YAIE_ROUTER_POD", "{", "YAIE_ROUTER_POD: Expecting"),
        ("YAIE_ROUTER_POD", "[]", "YAIE_ROUTER_POD: write a JSON object"),
        ("YAIE_ROUTER_POD", '{"nodeSelector": {"a": 1}}', "nodeSelector: every value is a text"),
        ("YAIE_ROUTER_POD", '{"tolerations": {}}', "tolerations: expected a list of objects"),
        ("YAIE_ROUTER_POD", '{"priorityClassName": 1}', "priorityClassName: expected a text"),
        ("YAIE_ROUTER_POD", '{"hostNetwork": true}', "YAIE_ROUTER_POD: hostNetwork is unknown"),
        (
            "YAIE_ROUTER_POD",
            '{"labels": {"yaie.dev/model": "x"}}',
            "yaie.dev/model is the operator's",
        ),
        ("YAIE_NETWORK_POLICIES", '{"engineClients": [{"pods": {}}]}', "pods is unknown"),
        ("YAIE_NETWORK_POLICIES", '{"routerClients": [{}]}', "an empty peer"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_place(name: str, text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        OperatorConfig.from_env({name: text})
