"""Building blocks of the InferenceModel type: the frozen base, CEL rules, common string patterns.

`model.py` defines the type with them; `crd.py` reads them when it renders the CRD.
"""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from yaie_api.engine_config import settings

CEL_KEY: Final = "x-kubernetes-validations"


@dataclass(frozen=True)
class Rule:
    """One CEL rule. The message tells the user what to write instead.

    A `cluster_only` rule applies only in a cluster, a `local_only` rule only under `yaie up`.
    """

    cel: str
    message: str
    cluster_only: bool = False
    local_only: bool = False


def rules(*items: Rule) -> dict[str, Any]:
    """The `json_schema_extra` of a field or class with CEL rules."""
    return {CEL_KEY: [asdict(item) for item in items]}


def setting(name: str, *, ge: float | None = None, le: float | None = None, about: str = "") -> Any:
    """Make a field from a setting of the engine, with its default, help text and limits.

    Args:
        name: name of the field of `EngineConfig`.
        ge: smallest value; default if `le` is given: the setting's own limit.
        le: largest value.
        about: text before the setting's help text.

    """
    known = settings()[name]
    told = about + known.setting.help
    description = f"{told[0].upper()}{told[1:]}."
    if known.default is None and known.told_default:
        description += f" Default: {known.told_default}."
    limits: dict[str, Any] = (
        {} if le is None else {"ge": known.setting.least if ge is None else ge, "le": le}
    )
    return Field(default=known.default, description=description, **limits)


class Part(BaseModel):
    """Base of all objects in an InferenceModel: frozen, camelCase in JSON, no unknown fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


def _quantity(value: Any) -> Any:
    """Convert a number to text: YAML reads `cpu: 2` as a number, and Kubernetes accepts both."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


INT_OR_STRING: Final = {"x-kubernetes-int-or-string": True, "minimum": 0}
QUANTITY: Final = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"
DNS_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
LABEL_KEY: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
SERVED_NAME: Final = r"^[A-Za-z0-9][-A-Za-z0-9._/:]*$"

Quantity = Annotated[
    str,
    Field(pattern=QUANTITY, max_length=32),
    BeforeValidator(_quantity),
    Field(json_schema_extra=INT_OR_STRING),
]
ServedName = Annotated[str, Field(pattern=SERVED_NAME, min_length=1, max_length=128)]
SecretName = Annotated[str, Field(pattern=DNS_SUBDOMAIN, min_length=1, max_length=253)]
SecretKey = Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", min_length=1, max_length=253)]
