"""A hub on the loopback, as far as a download of a model needs one.

Answers what the real one answers for: the commit of a revision, the list of files, HEAD and GET of
a file with its hash, ranges, unknown and gated repositories, and a bad token. It can break off the
body of a file once. Every request is noted.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from engine.checkpoint.fake_files import FileHandler, FileStore, listening

TOKEN = "hf_right"
API = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)/(?P<what>revision|tree)/(?P<rev>[^/]+)")
FILE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<rev>[^/]+)/(?P<name>.+)")
NO_REPOSITORY = (401, "RepoNotFound", "Invalid username or password.")
NO_REVISION = (404, "RevisionNotFound", "Invalid rev id")
NO_FILE = (404, "EntryNotFound", "Entry not found")
GATED = (401, "GatedRepo", "Access to this model is restricted. You must be authenticated.")
BAD_TOKEN = (401, "", "Invalid credentials in Authorization header")


@dataclass
class Repository:
    """Commits of one model: each a table of files."""

    commits: dict[str, dict[str, bytes]]
    refs: dict[str, str]
    gated: bool = False


@dataclass(kw_only=True)
class Hub(FileStore):
    """What is stored."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    broken_status: int | None = None

    def push(self, name: str, files: dict[str, bytes], *, ref: str = "main") -> str:
        """Add a commit that `ref` names from now on. Returns its id."""
        content = json.dumps({key: hashlib.sha1(value).hexdigest() for key, value in files.items()})
        commit = hashlib.sha1(f"{name}{content}".encode()).hexdigest()
        repository = self.repositories.setdefault(name, Repository({}, {}))
        repository.commits[commit] = files
        repository.refs[ref] = commit
        return commit

    def fetched(self) -> set[str]:
        """Names of the files whose bytes were asked for."""
        found = (FILE.fullmatch(path) for method, path, _ in self.asked if method == "GET")
        return {match["name"] for match in found if match}


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Run the hub on a free port of the loopback."""
    with listening(_Handler, hub):
        yield hub


class _Handler(FileHandler):
    store: ClassVar[Hub]

    def answer(self) -> None:
        path = urlsplit(self.path).path
        self.note(unquote(path))
        match = API.fullmatch(path) or FILE.fullmatch(path)
        repository = self.store.repositories.get(match["repo"]) if match else None
        if self.store.broken_status is not None:
            self._refuse(self.store.broken_status, "", "")
        elif self.headers.get("Authorization") not in {None, f"Bearer {TOKEN}"}:
            self._refuse(*BAD_TOKEN)
        elif match is None or repository is None:
            self._refuse(*NO_REPOSITORY)
        else:
            self._known(repository, match)

    def _known(self, repository: Repository, match: re.Match[str]) -> None:
        revision = unquote(match["rev"])  # a slash in it arrives quoted
        commit = repository.refs.get(revision, revision)
        if commit not in repository.commits:
            self._refuse(*NO_REVISION)
        elif match.re is FILE:
            self._file(repository, commit, unquote(match["name"]))
        elif match["what"] == "tree":
            self._json([_entry(*file) for file in repository.commits[commit].items()])
        else:
            siblings = [{"rfilename": name} for name in repository.commits[commit]]
            self._json({"id": match["repo"], "sha": commit, "siblings": siblings})

    def _file(self, repository: Repository, commit: str, name: str) -> None:
        if repository.gated and "Authorization" not in self.headers:
            return self._refuse(*GATED)
        content = repository.commits[commit].get(name)
        if content is None:
            return self._refuse(*NO_FILE)
        headers = {
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Repo-Commit": commit,
            "Accept-Ranges": "bytes",
        }
        return self.send_file(headers, content, name)

    def _json(self, value: Any) -> None:
        self.send(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def _refuse(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        body = json.dumps({"error": message}).encode()
        self.send(status, {key: value for key, value in headers.items() if value}, body)


def _entry(name: str, content: bytes) -> dict[str, Any]:
    return {
        "type": "file",
        "path": name,
        "size": len(content),
        "oid": hashlib.sha1(content).hexdigest(),
    }
