"""An InferenceModel as input of the object builders: identity and parsed spec, no status."""

from dataclasses import dataclass
from typing import Self

from yaie_api.resource.model import InferenceModelSpec
from yaie_operator.cluster import Object


@dataclass(frozen=True)
class ServedModel:
    """One InferenceModel whose spec has been parsed."""

    name: str
    namespace: str
    uid: str
    spec: InferenceModelSpec

    @classmethod
    def parse(cls, obj: Object) -> Self:
        """Parse a stored object.

        Raises:
            ValidationError: (pydantic) the stored spec is not valid in this version.

        """
        metadata = obj["metadata"]
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            spec=InferenceModelSpec.parse(obj["spec"]),
        )

    @property
    def served_names(self) -> tuple[str, ...]:
        """All names that clients may send; responses contain the first."""
        return (self.spec.model.served_name or self.name, *self.spec.model.aliases)


def served_names(obj: Object) -> set[str]:
    """All names that a stored InferenceModel claims, whether or not its spec is valid."""
    model = (obj.get("spec") or {}).get("model") or {}
    return {model.get("servedName") or obj["metadata"]["name"], *(model.get("aliases") or ())}


def age_of(obj: Object) -> tuple[str, str]:
    """What orders InferenceModels by age: creation time, then uid."""
    metadata = obj["metadata"]
    return metadata.get("creationTimestamp", ""), metadata["uid"]
