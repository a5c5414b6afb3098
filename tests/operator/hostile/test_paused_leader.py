"""A leader that the machine stops in the middle of a write: its heir leads, and what the old one
meant to write comes too late.
"""

import asyncio
import signal
import time
from pathlib import Path

import pytest

from cluster.gates.user import User, gate, seconds_until, user_of
from cluster.operator_scene import (
    USER,
    Operator,
    Scene,
    installed,
    kubeconfig,
    operator,
    scene,
    until,
)
from yaie_operator.watch.kinds import DEPLOYMENT

__all__ = ["installed", "kubeconfig", "scene"]
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.drill,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
HEIR_S = 15.0 + 5.0
"""The Lease of the one that stopped, and five seconds."""
CONFLICT = 409


async def cpu_of(user: User) -> str:
    deployment = await user.get(DEPLOYMENT, "demo")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    return str(container["resources"]["requests"]["cpu"])


async def becomes(user: User, cpu: str) -> None:
    async def is_so() -> bool:
        return await cpu_of(user) == cpu

    await seconds_until(is_so, f"cpu {cpu}")


async def test_a_write_of_a_leader_that_was_paused_meanwhile_is_refused_and_it_ends(
    scene: Scene, kubeconfig: Path, tmp_path: Path
) -> None:
    audit = scene.control_plane.audit
    if audit is None:
        pytest.skip("a cluster of the user keeps no audit log that this test could read")
    with gate(scene, kubeconfig, tmp_path) as (proxy, through):
        leader = Operator(through, tmp_path, "paused")
        try:
            leader.daemon.wait_until(lambda: leader.says("leading"), timeout_s=30)
            async with user_of(scene) as user:
                await user.create("demo", replicas=1, resources={"cpu": "1"})
                await asyncio.sleep(2.0)
                await becomes(user, "1")
                proxy.arm(1)
                await user.edit("demo", resources={"cpu": "2"})
                assert await asyncio.to_thread(proxy.holds, 10.0)
                assert proxy.what.startswith("PATCH deployments/demo")
                leader.daemon._process.send_signal(signal.SIGSTOP)
                stopped = time.monotonic()
                with operator(kubeconfig, tmp_path, "heir"):
                    assert time.monotonic() - stopped < HEIR_S
                    await becomes(user, "2")
                    await user.edit("demo", resources={"cpu": "3"})
                    await becomes(user, "3")
                    mark = audit.mark()

                    def late() -> list[int]:
                        """Status codes of the writes of Deployments since the mark."""
                        writes = scene.of_here(audit.writes_since(mark))
                        who = (USER, "deployments")
                        return [one.code for one in writes if (one.user, one.resource) == who]

                    proxy.release()  # its sender still stands
                    await asyncio.to_thread(until, lambda: late() == [CONFLICT])
                    leader.daemon._process.send_signal(signal.SIGCONT)
                    await asyncio.to_thread(
                        leader.daemon.wait_until,
                        lambda: leader.daemon._process.poll() is not None,
                        timeout_s=10,
                    )
                    assert leader.says("lease lost: this process ends")
                    assert late() == [CONFLICT]
                    assert await cpu_of(user) == "3"
        finally:
            leader.daemon.stop()
