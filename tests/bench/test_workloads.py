"""Every engine was timed on exactly this work: one other id, and figures mean nothing together."""

import hashlib
import json

import pytest

from bench.programs import peers, workloads

DIGESTS = {
    "decode1": "066c985dce1e898752e1312ff9866ad6be316a889e08bfd801591a3d962d25f5",
    "decode64": "6be17e81f28f716f20241b644b8e7c4610e00805e85369d6ad03568f173d4973",
    "nano": "6792fe8e9a50f4634b9b5a79789edbe89612f5cabf62fa743fc8ca79c69fff18",
    "prefill": "37759b4dfeec931d8560bedaa39df55031b510dcc4f532ceb87e1b5441623abf",
    "prefix": "7db346e7349a1e7c7ac3ede1ccf86f91ad11b756f58f228e7d9902e79512cfdb",
    "short": "9c434f070b82c222b392887007b3c1c97d913eb882601f255362e2fdca996508",
    "long": "eb5fe5554694bd16fac9d89cca4071f3febb794a1347b62cbf4d90b29ef6bd28",
}


@pytest.mark.parametrize("name", workloads.NAMES)
def test_a_workload_has_the_ids_that_peers_were_timed_on(name: str) -> None:
    text = json.dumps(workloads.workload(name))

    assert hashlib.sha256(text.encode()).hexdigest() == DIGESTS[name]


def test_an_unknown_workload_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        workloads.workload("decode65")


def test_each_workload_has_a_unit() -> None:
    assert set(peers.UNITS) == set(workloads.NAMES)


def test_each_figure_of_a_peer_belongs_to_a_shape_and_a_cell() -> None:
    assert {shape for shape, _ in peers.OFFLINE} == set(workloads.MODELS)
    assert {cell for _, cell in peers.OFFLINE} <= set(workloads.NAMES)
    assert {shape for shape, _ in peers.ONLINE} == set(workloads.MODELS)
