"""The kubelet of this machine: gives each pod GPUs, an address and a worker, and frees them.

`sync` compares the stored pods with the workers. It is called after every change and is cheap if
there is nothing to do.
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Final

from yaie_api.logs import fields
from yaie_local import kinds
from yaie_local.kubelet import gpus, volumes
from yaie_local.kubelet.addresses import AddressPool, ports_of
from yaie_local.kubelet.gpus import GPUPool
from yaie_local.kubelet.pod_status import unscheduled
from yaie_local.kubelet.pod_worker import Host, PodWorker
from yaie_local.kubelet.publish import Published
from yaie_local.objects import Ref, is_terminating, name_of, ref, uid_of
from yaie_operator.cluster import Object

log = logging.getLogger(__name__)

DEFAULT_GRACE_S: Final = 30


@dataclass(frozen=True)
class Running:
    """A worker and the task that runs it."""

    worker: PodWorker
    task: asyncio.Task[None]


class Kubelet:
    """Owner of the workers and of the GPU and address pools."""

    def __init__(
        self,
        host: Host,
        *,
        gpu_pool: GPUPool,
        addresses: AddressPool,
        published: Published | None = None,
    ) -> None:
        self._host = host
        self._gpus = gpu_pool
        self._addresses = addresses
        self._published = published
        self._running: dict[str, Running] = {}

    def sync(self) -> None:
        """Start and end workers so that they match the stored pods."""
        pods = self._host.store.list(kinds.PODS.kind)
        for pod in sorted(pods, key=_age_order):
            if uid_of(pod) not in self._running:
                self._admit(pod)
            elif is_terminating(pod):
                self._end(pod)
            elif pod["spec"].get("readinessGates"):
                self._running[uid_of(pod)].worker.refresh()
        known = {uid_of(pod) for pod in pods}
        for uid, running in self._running.items():
            if uid not in known and not running.worker.is_ending:
                running.worker.end(0, at_once=True)

    @property
    def is_publishing(self) -> bool:
        """Whether a pod's process has the published socket."""
        return any(running.worker.is_published for running in self._running.values())

    async def shutdown(self, grace_s: float) -> None:
        """End every pod within `grace_s`; a second call may shorten the time."""
        for running in self._running.values():
            running.worker.end(grace_s, at_once=True)
        tasks = [running.task for running in self._running.values()]
        await asyncio.gather(*tasks, return_exceptions=True)

    def hurry(self) -> None:
        """Kill all processes that still run."""
        for running in self._running.values():
            running.worker.end(0, at_once=True)

    def _admit(self, pod: Object) -> None:
        """Start a new pod if GPUs and an address are free, else report what it lacks."""
        if is_terminating(pod):
            self._host.store.delete(pod)
            return
        name, count = name_of(pod), gpus.wanted_by(pod)
        ids = self._gpus.take(name, count)
        if ids is None:
            self._keep_waiting(pod, self._gpus.shortage(count))
            return
        address = self._addresses.take(name, ports_of(pod))
        if address is None:
            self._gpus.give_back(name)
            self._keep_waiting(
                pod,
                f"port {', '.join(map(str, ports_of(pod)))} is taken on every loopback address: "
                "another program listens on 0.0.0.0; stop it or move it to another port",
            )
            return
        self._start(pod, address, ids)

    def _start(self, pod: Object, address: str, ids: list[str]) -> None:
        worker = PodWorker(
            pod, self._host, address=address, gpus=ids, published=self._published_by(pod)
        )
        task = asyncio.create_task(self._run(worker), name=name_of(pod))
        self._running[uid_of(pod)] = Running(worker, task)

    async def _run(self, worker: PodWorker) -> None:
        """Run a worker to its end, then free its GPUs and address and delete the pod."""
        pod = worker.pod
        try:
            await worker.run()
        except Exception:
            log.exception("the worker of a pod failed", extra=fields(pod=name_of(pod)))
        finally:
            del self._running[uid_of(pod)]
            self._gpus.give_back(name_of(pod))
            self._addresses.give_back(name_of(pod))
            volumes.discard(pod, self._host.state)
        live = self._host.store.get(ref(pod))
        if live is not None and uid_of(live) == uid_of(pod):
            self._host.store.delete(live)

    def _end(self, pod: Object) -> None:
        grace_s = pod["metadata"].get("deletionGracePeriodSeconds", DEFAULT_GRACE_S)
        worker = self._running[uid_of(pod)].worker
        if not worker.is_ending or grace_s == 0:
            worker.end(grace_s, at_once=grace_s == 0)

    def _keep_waiting(self, pod: Object, why: str) -> None:
        status = unscheduled(pod, why, time.time())
        self._host.store.update({**pod, "status": status})

    def _published_by(self, pod: Object) -> Published | None:
        """What the pod inherits, if it belongs to the published Service."""
        published = self._published
        if published is None:
            return None
        target = Ref("v1", "Service", published.namespace, published.service)
        return published if published.covers(pod, self._host.store.get(target)) else None


def _age_order(pod: Object) -> tuple[str, int]:
    """Sort key, oldest first: the pod that waits longest gets the next GPU."""
    meta = pod["metadata"]
    return meta["creationTimestamp"], int(meta["resourceVersion"])
