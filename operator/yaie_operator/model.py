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


class ParsedModels:
    """Parses stored InferenceModels. A spec that is as it was at the last look is not parsed again:
    most looks follow a change of a status or of a child.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Object, ServedModel]] = {}

    def parse(self, obj: Object) -> ServedModel:
        """Parse a stored object.

        Raises:
            ValidationError: (pydantic) the stored spec is not valid in this version.

        """
        metadata = obj["metadata"]
        spec, known = self._known.get((metadata["namespace"], metadata["name"]), ({}, None))
        if known is None or known.uid != metadata["uid"] or spec != obj["spec"]:
            known = ServedModel.parse(obj)
            self._known[known.namespace, known.name] = (obj["spec"], known)
        return known

    def forget(self, namespace: str, name: str) -> None:
        """Drop a model that does not exist any more."""
        self._known.pop((namespace, name), None)


def served_names(obj: Object) -> set[str]:
    """All names that a stored InferenceModel claims, whether or not its spec is valid."""
    model = (obj.get("spec") or {}).get("model") or {}
    return {model.get("servedName") or obj["metadata"]["name"], *(model.get("aliases") or ())}


def age_of(obj: Object) -> tuple[str, str]:
    """What orders InferenceModels by age: creation time, then uid."""
    metadata = obj["metadata"]
    return metadata.get("creationTimestamp", ""), metadata["uid"]
