"""Object storage on the loopback, as far as a download of a model needs it: ListObjectsV2, HEAD and
GET with Range and If-Match. It checks who asks, and can break off the body of a file once.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from engine.checkpoint.fake_files import FileHandler, FileStore, listening

KEY, SECRET = "AKIDRIGHT", "very-secret-value"


@dataclass(kw_only=True)
class Bucket(FileStore):
    """One bucket."""

    name: str = "models"
    files: dict[str, bytes] = field(default_factory=dict)
    is_down: bool = False

    @property
    def environ(self) -> dict[str, str]:
        """The environment of somebody who may read it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "eu-1",
        }


@contextmanager
def storing(bucket: Bucket) -> Iterator[Bucket]:
    """Serve the bucket on a free port of the loopback."""
    with listening(_Handler, bucket):
        yield bucket


class _Handler(FileHandler):
    store: ClassVar[Bucket]

    def answer(self) -> None:
        url = urlsplit(self.path)
        name, _, key = unquote(url.path).lstrip("/").partition("/")
        self.note(key)
        if self.store.is_down:
            self._refuse(500, "InternalError")
        elif f"Credential={KEY}/" not in self.headers.get("Authorization", ""):
            self._refuse(403, "InvalidAccessKeyId")
        elif name != self.store.name:
            self._refuse(404, "NoSuchBucket")
        elif not key:
            self._list(parse_qs(url.query))
        elif key not in self.store.files:
            self._refuse(404, "NoSuchKey")
        else:
            self._file(self.store.files[key], key.rpartition("/")[2])

    def _list(self, query: dict[str, list[str]]) -> None:
        prefix = query.get("prefix", [""])[0]
        rows = [
            f"<Contents><Key>{escape(key)}</Key><Size>{len(body)}</Size>"
            f"<ETag>{escape(tag(body))}</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, body in sorted(self.store.files.items())
            if key.startswith(prefix) and "/" not in key.removeprefix(prefix)
        ]
        space = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
        body = (
            f"<ListBucketResult {space}><Name>{self.store.name}</Name><IsTruncated>false"
            f"</IsTruncated><KeyCount>{len(rows)}</KeyCount>{''.join(rows)}</ListBucketResult>"
        )
        self.send(200, {"Content-Type": "application/xml"}, body.encode())

    def _file(self, content: bytes, name: str) -> None:
        if self.headers.get("If-Match") not in {None, tag(content)}:
            self._refuse(412, "PreconditionFailed")
            return
        headers = {"ETag": tag(content), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        self.send_file(headers, content, name)

    def _refuse(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
        self.send(status, {"Content-Type": "application/xml"}, body.encode())


def tag(content: bytes) -> str:
    """The ETag of a file."""
    return f'"{hashlib.md5(content).hexdigest()}"'
