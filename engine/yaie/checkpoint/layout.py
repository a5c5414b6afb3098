"""How a checkpoint names its tensors, where it does not use the model's own names.

A bare decoder is saved without "model."; a multimodal model keeps its language model below a prefix
of its own, beside parts that a model of text has no use for.
"""

from collections.abc import Collection
from typing import NamedTuple

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
OTHER_MODALITIES = (
    "vision_tower.",
    "multi_modal_projector.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
)


class Layout(NamedTuple):
    """`decoder` stands where the model's own names have "model."; `top` before the head's name."""

    decoder: str = "model."
    top: str = ""
    ignored: tuple[str, ...] = ()

    def name(self, stored: str) -> str | None:
        """Return the model's own name of a stored tensor; None: it belongs to another modality."""
        if stored.startswith(self.ignored):
            return None
        top = stored.removeprefix(self.top)
        if top.startswith(("lm_head.", "score.")) or not stored.startswith(self.decoder):
            return top
        return "model." + stored.removeprefix(self.decoder)


OWN = Layout()
LAYOUTS = (
    OWN,
    Layout(""),
    Layout("language_model.model.", "language_model.", OTHER_MODALITIES),
    Layout("model.language_model.", "", OTHER_MODALITIES),
)


def layout_of(names: Collection[str]) -> Layout:
    """Tell a checkpoint's layout by where its token embedding is."""
    for layout in LAYOUTS:
        if any(layout.name(name) == EMBEDDING for name in names if "embed_tokens" in name):
            return layout
    return OWN
