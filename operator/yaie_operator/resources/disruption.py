"""The PodDisruptionBudget of one model's engines."""

from yaie_api import names
from yaie_operator.cluster import Object
from yaie_operator.model import ServedModel
from yaie_operator.resources.engine import selector
from yaie_operator.resources.pod import model_owner
from yaie_operator.resources.shared import labels, manifest


def engine_budget(model: ServedModel) -> Object:
    """Let a drain of nodes evict one engine at a time, the next when the first is ready elsewhere.

    A share or a minimum would forbid the eviction of a single engine, and so the drain of its node.
    It exists for every number of engines, so that scaling between one and two writes nothing. An
    engine that is not ready may always be evicted: it serves nobody.
    """
    return manifest(
        "policy/v1",
        "PodDisruptionBudget",
        name=model.name,
        namespace=model.namespace,
        labels=labels(names.COMPONENT_ENGINE, model.name),
        owners=[model_owner(model)],
        spec={
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector(model)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    )
