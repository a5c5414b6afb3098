"""An InferenceModel as the builders see it: identity and parsed spec, nothing of its status."""

from dataclasses import dataclass
from typing import Self

from yaie_api.resource.model import InferenceModelSpec
from yaie_operator.cluster import Object


@dataclass(frozen=True)
class ServedModel:
    """One InferenceModel whose spec has been understood."""

    name: str
    namespace: str
    uid: str
    spec: InferenceModelSpec

    @classmethod
    def parse(cls, obj: Object) -> Self:
        """The model that a stored object describes.

        Raises:
            ValidationError: pydantic's; the stored spec is not one of this version.

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
        """Every name that clients may send, the first of them in answers."""
        return (self.spec.model.served_name or self.name, *self.spec.model.aliases)
