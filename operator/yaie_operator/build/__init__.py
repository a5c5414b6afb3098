"""The objects that should exist, as pure functions of the model and the configuration."""

from yaie_operator.build.engine import deployment as engine_deployment
from yaie_operator.build.router import anchor, router_objects
from yaie_operator.build.service import engine_service
from yaie_operator.cluster import Object
from yaie_operator.config import OperatorConfig
from yaie_operator.model import Model

__all__ = ["anchor", "model_objects", "router_objects"]


def model_objects(
    model: Model, config: OperatorConfig, *, deployment: Object | None
) -> tuple[Object, ...]:
    """Children of one model. `deployment`: the engines' Deployment as it is now, if it is ours."""
    return (engine_service(model), engine_deployment(model, config, observed=deployment))
