"""The objects that should exist, as pure functions of the model and the configuration."""

from yaie_operator.cluster import Object
from yaie_operator.config import OperatorConfig
from yaie_operator.model import ServedModel
from yaie_operator.resources.disruption import engine_budget
from yaie_operator.resources.engine import deployment as engine_deployment
from yaie_operator.resources.mounts import Stored
from yaie_operator.resources.router import router_objects
from yaie_operator.resources.service import engine_service

__all__ = ["model_objects", "router_objects"]


def model_objects(
    model: ServedModel,
    config: OperatorConfig,
    *,
    deployment: Object | None,
    in_place: bool = False,
    stored: Stored | None = None,
    held: bool = False,
) -> tuple[Object, ...]:
    """Children of one model without those of its cache. `deployment`: the engines' Deployment as it
    is now, if it is ours; `in_place`: engines are replaced in their places. `stored`: the model's
    weights in the cache. `held`: they are awaited; there is no new Deployment then, and an old one
    goes on as it is.
    """
    fixed = (engine_service(model), engine_budget(model))
    if held and deployment is None:
        return fixed
    engines = engine_deployment(
        model, config, observed=deployment, in_place=in_place, stored=stored, held=held
    )
    return (*fixed, engines)
