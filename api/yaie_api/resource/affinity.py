"""`spec.podTemplate.spec.affinity` of an InferenceModel, with the API server's own limits."""

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from yaie_api.resource.schema import (
    LABEL_KEY,
    LABEL_VALUE,
    MAX_LABEL_KEY,
    Part,
    Rule,
    rules,
)

_IN: Final = Rule(
    "!(self.operator in ['In', 'NotIn']) || (has(self.values) && self.values.size() > 0)",
    "operator In and NotIn need values; write at least one, or operator: Exists",
)
_EXISTS: Final = Rule(
    "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || "
    "self.values.size() == 0",
    "operator Exists and DoesNotExist have no values; remove them, or write operator: In",
)
_COMPARED: Final = Rule(
    "!(self.operator in ['Gt', 'Lt']) || (has(self.values) && self.values.size() == 1 && "
    "self.values[0].matches('^[0-9]{1,18}$'))",
    'operator Gt and Lt compare with one whole number; write values: ["8"]',
)
_ENGINES: Final = "Default: the engines of this model."


def _key() -> Any:
    return Field(max_length=MAX_LABEL_KEY, pattern=LABEL_KEY, description="Name of the label.")


def _values() -> Any:
    return Field(
        default=(),
        max_length=16,
        description="Its values.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


_Value = Annotated[str, Field(max_length=63, pattern=LABEL_VALUE)]


class LabelRequirement(Part):
    """What a pod's label must be."""

    model_config = ConfigDict(json_schema_extra=rules(_IN, _EXISTS))

    key: str = _key()
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="How the label is compared with `values`."
    )
    values: tuple[_Value, ...] = _values()


class LabelSelector(Part):
    """Chooses pods by their labels: all of it must hold."""

    match_labels: dict[
        Annotated[str, Field(max_length=MAX_LABEL_KEY, pattern=LABEL_KEY)], _Value
    ] = Field(
        default_factory=dict,
        max_length=16,
        description="Labels with their values.",
        json_schema_extra=rules(
            Rule(
                f"self.all(key, key.size() <= {MAX_LABEL_KEY} && key.matches(r'{LABEL_KEY}'))",
                "a key of matchLabels is a label's name, such as app.kubernetes.io/name",
            )
        ),
    )
    match_expressions: tuple[LabelRequirement, ...] = Field(
        default=(), max_length=8, description="Labels with other comparisons."
    )


class NodeRequirement(Part):
    """What a node's label must be."""

    model_config = ConfigDict(json_schema_extra=rules(_IN, _EXISTS, _COMPARED))

    key: str = _key()
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(
        description="How the label is compared with `values`; Gt and Lt as whole numbers."
    )
    values: tuple[_Value, ...] = _values()


class NodeTerm(Part):
    """Chooses nodes by their labels: all of it must hold."""

    match_expressions: tuple[NodeRequirement, ...] = Field(
        min_length=1, max_length=8, description="What the node's labels must be."
    )


class NodeTerms(Part):
    """Nodes that one of the terms chooses."""

    node_selector_terms: tuple[NodeTerm, ...] = Field(
        min_length=1, max_length=4, description="At least one of them must hold."
    )


_WEIGHT: Final = "How much it counts, beside the others."


class PreferredNodes(Part):
    """Nodes that are preferred."""

    weight: int = Field(ge=1, le=100, description=_WEIGHT)
    preference: NodeTerm = Field(description="Which nodes.")


class NodeAffinity(Part):
    """Which nodes engines run on."""

    required_during_scheduling_ignored_during_execution: NodeTerms | None = Field(
        default=None, description="Nodes on which alone engines may run."
    )
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredNodes, ...] = Field(
        default=(), max_length=8, description="Nodes on which engines run if they can."
    )


class PodTerm(Part):
    """Nodes of a domain in which some pods run."""

    label_selector: LabelSelector | None = Field(
        default=None, description=f"Which pods of the model's namespace. {_ENGINES}"
    )
    topology_key: str = Field(
        max_length=MAX_LABEL_KEY,
        pattern=LABEL_KEY,
        description="Label of nodes that names their domain: kubernetes.io/hostname.",
    )


class PreferredPods(Part):
    """Nodes near to, or far from, some pods, that are preferred."""

    weight: int = Field(ge=1, le=100, description=_WEIGHT)
    pod_affinity_term: PodTerm = Field(description="Which pods, and how near.")


class PodAffinity(Part):
    """Near to which pods engines run, or far from which."""

    required_during_scheduling_ignored_during_execution: tuple[PodTerm, ...] = Field(
        default=(), max_length=4, description="What must hold."
    )
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredPods, ...] = Field(
        default=(), max_length=4, description="What should hold if it can."
    )


class PodAffinities(Part):
    """Near to, or far from, which nodes and pods engines run."""

    node_affinity: NodeAffinity | None = Field(
        default=None, description="Which nodes engines run on."
    )
    pod_affinity: PodAffinity | None = Field(
        default=None, description="Near to which pods engines run."
    )
    pod_anti_affinity: PodAffinity | None = Field(
        default=None, description="Far from which pods engines run."
    )
