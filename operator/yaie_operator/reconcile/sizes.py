"""`status.model` and `status.capacity`: what an engine loaded and has room for. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yaie_api.resource.capacity import max_concurrency
from yaie_operator.cluster import Object


@dataclass(frozen=True)
class Sizes:
    """What an engine says of itself; 0: it does not say it."""

    parameters: int = 0
    weight_bytes: int = 0
    context_tokens: int = 0
    kv_tokens: int = 0


def with_sizes(status: Mapping[str, Any], model: Object, sizes: Sizes | None) -> dict[str, Any]:
    """The status with the sizes of the model's engines.

    Args:
        status: the new status.
        model: the stored model. What its status says stays while nothing newer is known, unless the
            spec has changed and no engine of the earlier one serves.
        sizes: what an engine has said; None: none has yet.

    """
    if sizes is None:
        return {**status, **_stored(status, model.get("status") or {})}
    told = {
        "parameters": sizes.parameters,
        "weightBytes": sizes.weight_bytes,
        "contextLength": sizes.context_tokens,
    }
    kv_tokens, longest = sizes.kv_tokens, sizes.context_tokens
    concurrency = round(max_concurrency(kv_tokens, longest), 2) if longest else 0.0
    return {
        **status,
        "model": {**status.get("model", {}), **told},
        "capacity": {"kvTokens": kv_tokens, "maxConcurrency": concurrency},
    }


def _stored(status: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    is_same = status["rollout"].get("hash") == old.get("rollout", {}).get("hash")
    if "capacity" not in old or not (is_same or status["replicas"]["ready"]):
        return {}
    model = {**old.get("model", {}), **status.get("model", {})}
    return {"model": model, "capacity": old["capacity"]}
