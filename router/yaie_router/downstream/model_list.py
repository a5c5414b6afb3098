"""What `/v1/models` says of a model."""

from typing import Any

from yaie_router.discovery.objects import Model


def entry(name: str, model: Model) -> dict[str, Any]:
    """Return OpenAI's model object. For an alias, `root` is the model's served name."""
    state: dict[str, Any] = {"state": "waiting", "reason": model.awaiting}
    if model.endpoints:
        state = {"state": "ready", "engines": len(model.endpoints)}
    length = {} if model.context_tokens is None else {"max_model_len": model.context_tokens}
    return {
        "id": name,
        "object": "model",
        "created": model.created_s,
        "owned_by": "yaie",
        "root": model.served,
        "parent": None,
        **length,
        **state,
    }
