"""The keys and certificates of one test cluster, made by openssl. They live as long as its folder.

ca ─┬─ apiserver                       (serving; also the kubelet's client of the API server)
    ├─ admin    O=system:masters
    ├─ controller-manager, scheduler, kube-proxy    CN=system:…
    └─ kubelet  CN=system:node:NAME, O=system:nodes
service-account.key                    signs the tokens of pods
"""

import base64
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.missing import MissingError

DAYS = "2"
KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self.folder = folder
        # The machine's openssl.cnf adds extensions of its own: use an empty one.
        (folder / "openssl.cnf").write_text("[req]\ndistinguished_name=name\n[name]\n")
        self.ca = self._make("ca", "/CN=yaie-test-ca", ["basicConstraints=critical,CA:TRUE"])
        self.service_account_key = folder / "service-account.key"
        key = self.service_account_key
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)

    def issue(self, name: str, subject: str, *, hosts: Sequence[str] = ()) -> Pair:
        """A certificate for servers and clients alike. `hosts` are `DNS:…` and `IP:…` names."""
        extensions = [
            "basicConstraints=critical,CA:FALSE",
            "extendedKeyUsage=serverAuth,clientAuth",
            *([f"subjectAltName={','.join(hosts)}"] if hosts else []),
        ]
        signer = ["-CA", str(self.ca.certificate), "-CAkey", str(self.ca.key)]
        return self._make(name, subject, extensions, signer)

    def _make(
        self, name: str, subject: str, extensions: Sequence[str], signer: Sequence[str] = ()
    ) -> Pair:
        pair = Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        added = [word for extension in extensions for word in ("-addext", extension)]
        config = ["-config", str(self.folder / "openssl.cnf")]
        _openssl(
            *["req", "-x509", *config, *KEY, "-days", DAYS, "-subj", subject, *added, *signer],
            *["-keyout", pair.key, "-out", pair.certificate],
        )
        return pair


def kubeconfig(path: Path, *, server: str, ca: Path, user: dict[str, str]) -> Path:
    """Write a kubeconfig that holds everything in itself (JSON is YAML)."""
    cluster = {"server": server, "certificate-authority-data": encode(ca)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=1))
    return path


def certificate_user(pair: Pair) -> dict[str, str]:
    """A kubeconfig user who shows a client certificate."""
    return {
        "client-certificate-data": encode(pair.certificate),
        "client-key-data": encode(pair.key),
    }


def encode(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _openssl(*arguments: str | Path) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise MissingError("openssl is not installed: it makes the cluster's certificates")
    subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, text=True)
