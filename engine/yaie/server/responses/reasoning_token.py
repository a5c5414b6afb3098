"""The `encrypted_content` of reasoning items, for clients that keep nothing else of them.

It holds the reasoning's text, encoded. It is no secret: the item tells the text, too.
"""

import base64
import binascii
from typing import Any, Final

_MARK: Final = "yaie-reasoning-1."


def write(text: str) -> str:
    """Encode a reasoning's text."""
    return _MARK + base64.urlsafe_b64encode(text.encode()).decode()


def read(content: Any) -> str:
    """Return the text of an `encrypted_content`; "": it is not ours."""
    if not isinstance(content, str) or not content.startswith(_MARK):
        return ""
    try:
        return base64.urlsafe_b64decode(content.removeprefix(_MARK)).decode()
    except (binascii.Error, ValueError):
        return ""
