"""`make fuzz`: every target of targets.py for a while; the exit status is 1 after a finding.

python tests/fuzz/run.py [--seconds 200] [--target NAME …]
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "yaie" / "fuzz"
NAMES = ("body", "chat", "header")
INPUT_TIMEOUT_S = 2
MEMORY_LIMIT_MIB = 2048


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=200, help="for each target")
    parser.add_argument("--target", nargs="+", choices=NAMES, default=NAMES)
    arguments = parser.parse_args()
    library = _library()
    found = [_fuzz(name, arguments.seconds, library) for name in arguments.target]
    return int(any(found))


def _fuzz(name: str, seconds: int, library: Path) -> bool:
    """Whether the target found something. Its input is left in the folder that is named."""
    findings = tempfile.mkdtemp(prefix=f"yaie-fuzz-{name}-")
    done = subprocess.run(
        [
            sys.executable, HERE / "targets.py", name, f"-max_total_time={seconds}",
            f"-timeout={INPUT_TIMEOUT_S}", f"-rss_limit_mb={MEMORY_LIMIT_MIB}", "-max_len=4096",
            f"-artifact_prefix={findings}/", "-print_final_stats=1",
        ],
        env=os.environ | {"PYTHONPATH": str(library)}, capture_output=True, text=True, check=False,
        timeout=seconds + 300,
    )  # fmt: skip
    stats = [line for line in done.stderr.splitlines() if line.startswith("stat::")]
    print(
        f"{name}: {'FOUND in ' + findings if done.returncode else 'nothing found'}",
        *stats,
        sep="\n  ",
    )
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:])
    return done.returncode != 0


def _library() -> Path:
    """The fuzzer in a folder of its own: the project does not depend on it."""
    requirements = HERE / "requirements.txt"
    folder = CACHE / hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    if not (folder / ".complete").exists():
        uv = Path(sys.executable).with_name("uv")
        subprocess.run(
            [
                uv,
                "pip",
                "install",
                "-q",
                "--target",
                folder,
                "--require-hashes",
                "-r",
                requirements,
            ],
            check=True,
            timeout=300,
        )
        (folder / ".complete").touch()
    return folder


if __name__ == "__main__":
    sys.exit(main())
