"""A model's engines, counted by state. Pure."""

from dataclasses import dataclass

from yaie_api.resource.model import InferenceModelSpec
from yaie_operator.cluster import Object
from yaie_operator.reconcile.observe import ModelView
from yaie_operator.reconcile.plan import is_ours
from yaie_operator.reconcile.pods import is_draining
from yaie_operator.reconcile.rollout.endpoints import ready_pods


@dataclass(frozen=True)
class Replicas:
    """Engines by state. `reached`: those that the Service leads to; `settled`: the Deployment
    controller has observed the latest spec.
    """

    desired: int = 0
    current: int = 0
    updated: int = 0
    ready: int = 0
    draining: int = 0
    reached: int = 0
    settled: bool = False

    @property
    def older(self) -> int:
        """Engines of an earlier spec."""
        return max(0, self.current - self.updated)

    @property
    def are_current(self) -> bool:
        """Whether all desired engines run the current spec and are ready, and no others run."""
        return self.settled and self.current == self.updated == self.ready == self.desired


def count(view: ModelView, spec: InferenceModelSpec | None) -> Replicas:
    deployment = own_deployment(view)
    status = deployment.get("status", {}) if deployment else {}
    generation = deployment["metadata"].get("generation", 0) if deployment else 0
    return Replicas(
        desired=spec.desired_replicas if spec else 0,
        current=status.get("replicas", 0),
        updated=status.get("updatedReplicas", 0),
        ready=status.get("readyReplicas", 0),
        draining=sum(is_draining(pod) for pod in view.pods),
        reached=len(ready_pods(view.slices)),
        settled=deployment is not None and status.get("observedGeneration", 0) >= generation,
    )


def own_deployment(view: ModelView) -> Object | None:
    """The engines' Deployment if it is the model's, else None."""
    deployment = view.deployment
    return deployment if deployment and is_ours(deployment, view.metadata["uid"]) else None
