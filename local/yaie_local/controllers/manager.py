"""Runs the controllers over the store: garbage collection, Deployments, Jobs, EndpointSlices, the
kubelet.

A pass may change the store, which makes another pass necessary; `settle` repeats until a pass
changes nothing.
"""

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from yaie_local import kinds
from yaie_local.apiserver.api_verbs import Verbs
from yaie_local.controllers import deployments, endpoints, gc, jobs
from yaie_local.kubelet import volumes
from yaie_local.kubelet.kubelet import Kubelet
from yaie_local.objects import name_of, owned_by, owner_reference
from yaie_operator.cluster import Object

MANAGER: Final = "yaie-up"
_MAX_PASSES: Final = 50
_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"


class Controllers:
    """All controllers that act on stored objects, except the operator."""

    def __init__(self, verbs: Verbs, kubelet: Kubelet, *, rng: random.Random | None = None) -> None:
        self._verbs = verbs
        self._store = verbs.store
        self._kubelet = kubelet
        self._rng = rng or random.Random()  # noqa: S311 - names of pods, not secrets

    def settle(self, now: float) -> None:
        """Run passes until one changes nothing. `now`: seconds since the epoch.

        Raises:
            RuntimeError: the store still changes after _MAX_PASSES passes.

        """
        for _ in range(_MAX_PASSES):
            before = self._store.version
            self._collect_garbage()
            self._run_deployments(now)
            self._run_jobs(now)
            self._publish_endpoints()
            self._kubelet.sync()
            if self._store.version == before:
                return
        raise RuntimeError(f"the controllers did not settle in {_MAX_PASSES} passes")

    def _collect_garbage(self) -> None:
        everything = [obj for kind in kinds.ALL for obj in self._store.list(kind.kind)]
        for orphan in gc.orphans(everything):
            if kinds.of_object(orphan) is not kinds.CLAIMS:
                self._verbs.delete(orphan)
            elif not volumes.in_use(orphan, self._store.list(kinds.PODS.kind)):
                self._verbs.delete(orphan)
                self._kubelet.discard_claim(orphan)

    def _run_deployments(self, now: float) -> None:
        for deployment in self._store.list(kinds.DEPLOYMENTS.kind):
            self._step(deployment, now)
            pods = self._views(deployment, now)
            status = deployments.status_of(deployment, pods, now=now)
            self._verbs.patch_status(deployment, status)

    def _run_jobs(self, now: float) -> None:
        for job in self._store.list(kinds.JOBS.kind):
            decision = jobs.decide(job, self._pods(job))
            for pod in self._pods(job):
                if name_of(pod) in decision.delete:
                    self._verbs.delete(pod)
            if decision.create:
                suffix = "".join(self._rng.choices(_SUFFIX, k=5))
                pod = self._made_by(job, f"{name_of(job)}-{suffix}")
                self._verbs.create(pod, manager=MANAGER)
            self._verbs.patch_status(job, jobs.status_of(job, self._pods(job), now=now))

    def _step(self, deployment: Object, now: float) -> None:
        views = self._views(deployment, now)
        decision = deployments.decide(deployments.wanted_of(deployment), views)
        pods = {name_of(pod): pod for pod in self._pods(deployment)}
        for name in decision.delete:
            self._verbs.delete(pods[name])
        for _ in range(decision.create):
            self._verbs.create(self._pod(deployment), manager=MANAGER)

    def _views(self, deployment: Object, now: float) -> list[deployments.PodView]:
        current = deployments.template_hash(deployment)
        least_s = deployment["spec"].get("minReadySeconds", 0)
        return [
            deployments.view(pod, current, now=now, min_ready_s=least_s)
            for pod in self._pods(deployment)
        ]

    def _pods(self, owner: Object) -> list[Object]:
        namespace = owner["metadata"]["namespace"]
        return owned_by(self._store.list(kinds.PODS.kind, namespace=namespace), owner)

    def _pod(self, deployment: Object) -> Object:
        """A pod made from the current template, with a new name."""
        current = deployments.template_hash(deployment)
        suffix = "".join(self._rng.choices(_SUFFIX, k=5))
        name = f"{name_of(deployment)}-{current}-{suffix}"
        return self._made_by(deployment, name, {deployments.LABEL_HASH: current})

    def _made_by(
        self, owner: Object, name: str, labels: Mapping[str, str] = MappingProxyType({})
    ) -> Object:
        """A pod from the template of its owner."""
        template = owner["spec"]["template"]
        meta = template.get("metadata") or {}
        return {
            "apiVersion": kinds.PODS.kind.api_version,
            "kind": kinds.PODS.kind.kind,
            "metadata": {
                "name": name,
                "namespace": owner["metadata"]["namespace"],
                "labels": {**meta.get("labels", {}), **labels},
                "annotations": meta.get("annotations", {}),
                "ownerReferences": [owner_reference(owner)],
            },
            "spec": {**template["spec"], "nodeName": "localhost"},
        }

    def _publish_endpoints(self) -> None:
        for service in self._store.list(kinds.SERVICES.kind):
            pods = self._store.list(kinds.PODS.kind, namespace=service["metadata"]["namespace"])
            wanted = endpoints.slice_of(service, pods)
            if wanted is not None:
                self._verbs.apply(wanted, manager=MANAGER, force=True)
