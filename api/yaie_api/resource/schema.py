"""Building blocks of the InferenceModel type: the frozen base, CEL rules, common string patterns.

`model.py` defines the type with them; `crd.py` reads them when it renders the CRD.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from yaie_api.engine_config import settings

CEL_KEY: Final = "x-kubernetes-validations"


@dataclass(frozen=True)
class Rule:
    """One CEL rule. The message tells the user what to write instead.

    A `cluster_only` rule applies only in a cluster, a `local_only` one only under `yaie up`, which
    renders the CRD with `local=True`.
    """

    cel: str
    message: str
    cluster_only: bool = False
    local_only: bool = False


def rules(*items: Rule) -> dict[str, Any]:
    """The `json_schema_extra` of a field or class with CEL rules."""
    return {CEL_KEY: [asdict(item) for item in items]}


REFUSED_KEY: Final = "x-yaie-refused"


def refusing(fields: Mapping[str, tuple[str, str]], *items: Rule) -> dict[str, Any]:
    """The `json_schema_extra` of a class that refuses some fields of a Kubernetes type by name.

    `fields`: their types (object, objects, string, strings, boolean, integer), and what to write
    instead. The type in Python lacks them; the CRD has them, each with a rule, because the API
    server would only call them unknown, or drop them.
    """
    refused = (Rule(f"!has(self.{name})", f"{name}: {do}") for name, (_, do) in fields.items())
    return {**rules(*refused, *items), REFUSED_KEY: dict(fields)}


def keyed(*keys: str) -> dict[str, Any]:
    """The `json_schema_extra` of a list whose items are told apart by these keys."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


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


def _text(value: Any) -> Any:
    """Convert a number to text: YAML reads `cpu: 2` as a number, and Kubernetes accepts both."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
CPU: Final = r"^([0-9]{1,9}m|[0-9]{1,6}(\.[0-9]{1,3})?)$"
MEMORY: Final = r"^([0-9]{1,15}|[0-9]{1,6}(\.[0-9]{1,3})?(k|M|G|T|Ki|Mi|Gi|Ti))$"
DNS_LABEL: Final = rf"^{_LABEL}$"
DNS_SUBDOMAIN: Final = rf"^{_LABEL}(\.{_LABEL})*$"
LABEL_KEY: Final = rf"^({_LABEL}(\.{_LABEL})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$"
LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
SERVED_NAME: Final = r"^[A-Za-z0-9][-A-Za-z0-9._/:]*$"
DATA_KEY: Final = r"^\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$"
ENV_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
REVISION: Final = r"^[A-Za-z0-9][-A-Za-z0-9_/]*(\.[-A-Za-z0-9_/]+)*$"
TEXT: Final = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$"
_FILE: Final = r"\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*"
DATA_PATH: Final = rf"^{_FILE}(/{_FILE})*$"
MOUNT_PATH: Final = rf"^(/{_FILE})+$"
_BYTE: Final = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_H: Final = r"[0-9a-f]{1,4}"
IP: Final = (
    rf"^(({_BYTE}\.){{3}}{_BYTE}|({_H}:){{7}}{_H}|({_H}:){{1,7}}:|({_H}:){{1,6}}:{_H}|"
    rf"({_H}:){{1,5}}(:{_H}){{1,2}}|({_H}:){{1,4}}(:{_H}){{1,3}}|({_H}:){{1,3}}(:{_H}){{1,4}}|"
    rf"({_H}:){{1,2}}(:{_H}){{1,5}}|{_H}:(:{_H}){{1,6}}|:(:{_H}){{1,7}}|::)$"
)
_IMAGE_PATH: Final = r"[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*"
IMAGE: Final = (
    r"^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?/)?"
    rf"{_IMAGE_PATH}(/{_IMAGE_PATH})*"
    r"(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(@[a-z0-9]+:[0-9a-f]{32,128})?$"
)
WORDS: Final[Mapping[str, str]] = {
    CPU: "a number of CPUs, with at most three decimals: 4, 0.5 in quotes, or 500m",
    MEMORY: "bytes with their unit: 16Gi or 512Mi",
    DNS_LABEL: "lower-case letters, digits and '-', with a letter or digit at both ends",
    DNS_SUBDOMAIN: "the name of an object: lower-case letters, digits, '-' and '.', with a letter "
    "or digit at both ends of each part",
    LABEL_KEY: "the name of a label, such as nvidia.com/gpu.product",
    LABEL_VALUE: "the value of a label: letters, digits, '-', '_' and '.', with a letter or digit "
    "at both ends",
    SERVED_NAME: "a name of letters, digits and -._/: that begins with a letter or digit",
    DATA_KEY: "a key of a Secret: letters, digits, '-', '_' and '.', not '..' at its beginning",
    DATA_PATH: "a path without '..' that does not begin with '/': letters, digits and -._/",
    MOUNT_PATH: "a path from the root, without '..': letters, digits and -._/",
    IP: "an address, as 10.0.0.1 or fd00::1",
    ENV_NAME: "the name of a variable: letters, digits and '_', and no digit at its beginning",
    REVISION: "a branch, tag or commit: letters, digits and -._/ without '..'",
    TEXT: "text without control characters",
    IMAGE: "an image as REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST",
}
"""What to write for each pattern. The CRD has a rule with these words in place of the pattern, of
which the API server would only say that the value does not match."""

MAX_LABEL_KEY: Final = 253


def _int_or_string(most: int) -> dict[str, Any]:
    return {"x-kubernetes-int-or-string": True, "minimum": 0, "maximum": most}


CPUs = Annotated[
    str,
    Field(pattern=CPU, max_length=32),
    BeforeValidator(_text),
    Field(json_schema_extra=_int_or_string(999_999)),
]
Bytes = Annotated[
    str,
    Field(pattern=MEMORY, max_length=32),
    BeforeValidator(_text),
    Field(json_schema_extra=_int_or_string(999_999_999_999_999)),
]
ServedName = Annotated[str, Field(pattern=SERVED_NAME, min_length=1, max_length=128)]
SecretName = Annotated[str, Field(pattern=DNS_SUBDOMAIN, min_length=1, max_length=253)]
SecretKey = Annotated[str, Field(pattern=DATA_KEY, min_length=1, max_length=253)]
