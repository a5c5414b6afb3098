"""Self-signed certificates, made by the openssl program."""

import subprocess
from pathlib import Path


def self_signed(folder: Path, organization: str = "yaie") -> Path:
    """Write tls.crt and tls.key for localhost and 127.0.0.1 into the folder, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    subject = ["-subj", f"/O={organization}/CN=localhost"]
    subject += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"]
    command += ["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    return folder
