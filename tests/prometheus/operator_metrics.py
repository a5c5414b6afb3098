"""The operator's manager and its metrics port, over a cluster in memory that has one model.

`yaie up` runs the operator without this port. Prints the port, then serves until it is killed.
"""

import asyncio

from fakes.fake_cluster import FakeCluster, inference_model
from yaie_api import names
from yaie_operator.config import OperatorConfig
from yaie_operator.manager import Manager
from yaie_operator.monitoring.probes import serve
from yaie_operator.reconcile.observe import Ref

NAMESPACE = "default"


async def main() -> None:
    cluster = FakeCluster()
    manager = Manager(cluster, OperatorConfig(resync_s=2.0))
    manager.metrics.leader.set(1)
    model = inference_model(autoscaling={"max": 2, "target": {"activeRequests": 8}})
    model["metadata"]["namespace"] = NAMESPACE
    cluster.put(model)
    stop = asyncio.Event()
    running = asyncio.create_task(manager.run(stop))
    async with serve(
        manager.metrics, host="127.0.0.1", port=0, is_ready=lambda: manager.synced
    ) as port:
        print(port, flush=True)
        for name in ("demo", names.ROUTER):
            deployment = Ref("Deployment", NAMESPACE, name)
            while deployment not in cluster.objects:  # noqa: ASYNC110 - the manager makes it
                await asyncio.sleep(0.05)
            cluster.make_ready(deployment)
        while True:  # something to write, again and again
            await asyncio.sleep(2)
            cluster.remove(Ref("Service", NAMESPACE, "demo"))
            assert not running.done(), "the manager ended"


if __name__ == "__main__":
    asyncio.run(main())
