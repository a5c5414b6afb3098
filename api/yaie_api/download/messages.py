"""What the pod of a download tells the operator.

While it runs it answers `GET /progress` with a `Progress`; at its end its termination message is a
`Result`, or the sentence that says why it failed. So it needs no rights in the cluster.
"""

from typing import Annotated, Self

import msgspec

from yaie_api.download.amounts import how_far

Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class Progress(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How far a download is. `total_bytes` and `eta_seconds`: None while they are not known."""

    bytes: Count
    total_bytes: Count | None = None
    bytes_per_second: Count = 0
    eta_seconds: Count | None = None

    def __str__(self) -> str:
        return how_far(self.bytes, self.total_bytes or 0, self.bytes_per_second, self.eta_seconds)


class Result(msgspec.Struct, frozen=True, rename="camel"):
    """What has been stored: `folder` is relative to the volume's root. `revision`: the commit of
    an hf:// source, the hash of an s3:// source's files. `bytes`: of all files.
    """

    folder: str
    revision: str
    bytes: Count

    def text(self) -> str:
        """As a termination message."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The result that a termination message holds; None if it is something else."""
        try:
            found = msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeError):
            return None
        is_inside = found.folder and not found.folder.startswith("/")
        return found if is_inside and ".." not in found.folder.split("/") else None


def parse_progress(body: bytes) -> Progress | None:
    """The progress that an answer holds; None if it is something else."""
    try:
        return msgspec.json.decode(body, type=Progress)
    except (msgspec.DecodeError, UnicodeError):
        return None
