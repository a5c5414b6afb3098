"""Maps a checkpoint's tensor names to the model's names, if they differ.

A bare decoder is saved without the prefix "model."; a multimodal checkpoint has the language model
below another prefix, beside parts for other modalities.
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
    """Prefixes of a checkpoint's names: `decoder` replaces the model's "model.", `top` precedes the
    head's name, `ignored` marks other modalities.
    """

    decoder: str = "model."
    top: str = ""
    ignored: tuple[str, ...] = ()

    def name(self, stored: str) -> str | None:
        """Return the model's name for a stored tensor; None if it belongs to another modality."""
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
    """Determine a checkpoint's layout by the name of its token embedding."""
    for layout in LAYOUTS:
        if any(layout.name(name) == EMBEDDING for name in names if "embed_tokens" in name):
            return layout
    return OWN
