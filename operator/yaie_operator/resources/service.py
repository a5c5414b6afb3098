"""The Service of one model. Routers find the engines through its EndpointSlices."""

from yaie_api import names
from yaie_operator.cluster import Object
from yaie_operator.model import ServedModel
from yaie_operator.resources.engine import selector
from yaie_operator.resources.pod import model_owner
from yaie_operator.resources.shared import http_service, labels


def engine_service(model: ServedModel) -> Object:
    """The Service. Kubernetes copies its labels to its EndpointSlices; routers select by them."""
    return http_service(
        name=model.name,
        namespace=model.namespace,
        labels=labels(names.COMPONENT_ENGINE, model.name),
        owners=[model_owner(model)],
        selector=selector(model),
    )
