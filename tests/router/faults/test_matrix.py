"""A part of the fault matrix with few clients; `make faults` runs the whole of it."""

from pathlib import Path

import pytest

from router.faults.matrix import FAULTS, HEADER, Fault, measure, scripted
from router.faults.scripted_engine import FAULTS as SCRIPTED


def test_every_scripted_fault_is_in_the_matrix() -> None:
    assert {fault.name for fault in FAULTS} == set(SCRIPTED) - {"none"}


@pytest.mark.drill
@pytest.mark.parametrize(
    "fault",
    [fault for fault in FAULTS if fault.name in ("breaks", "heartbeats", "black hole")],
    ids=lambda fault: fault.name,
)
async def test_no_client_gets_an_error_from_one_engine(fault: Fault, tmp_path: Path) -> None:
    async with scripted(tmp_path) as stage:
        figures = await measure(stage, fault, clients=24)
    assert not figures.missed, f"{HEADER}\n{figures.row}"
