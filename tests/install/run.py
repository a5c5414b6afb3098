"""Installs the project as README says, each extra into an environment of its own, and uses it.

    python tests/install/run.py        # `make test-install`: about two minutes

For every extra a wheel is installed with pip, and commands are typed: those that the extra suffices
for work, every other one says in one line what to install. The packages that an extra needs are
linked from the environment that runs this program, exactly those of the extra, so that torch is not
downloaded again; pip itself decides whether they are enough. The base install, which is small, is
made from the package index as well, unless there is none (`--offline`).
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(sysconfig.get_path("purelib"))
BUILD = ("hatchling", "editables")
SHARED = ("opentelemetry",)
"""Folders that several distributions fill: each brings only its own part."""
DEMO = "builtin://yaie-demo"
ENGINE, WHOLE = 'pip install -e ".[engine]"', 'pip install -e ".[all]"'
ASK = ["--prompt", "What is Kubernetes?", "--max-tokens", "8"]
LLM = "import yaie; print(yaie.LLM('builtin://yaie-demo', device='cpu').generate('A pod is')[0])"


@dataclass(frozen=True)
class Typed:
    """A command line, its exit status, and what it says; a traceback must not be in it."""

    line: tuple[str, ...]
    says: str
    status: int = 0


def yaie(*words: str, says: str = "", status: int = 0) -> Typed:
    return Typed(("yaie", *words), says, status)


def python(code: str, says: str = "", status: int = 0) -> Typed:
    return Typed(("python", "-c", code), says, status)


EVERYWHERE = (
    yaie("--help", says="commands:"),
    yaie("version", says="yaie 0."),
    yaie(
        "chat",
        "--endpoint",
        "http://127.0.0.1:9",
        "--prompt",
        "hi",
        says="Nothing answers",
        status=1,
    ),
    yaie("ls", says=DEMO),
)
BATCH = (
    "run-batch",
    "-i",
    "{batch}",
    "-o",
    "{folder}/out.jsonl",
    "--model",
    DEMO,
    "--device",
    "cpu",
)
NO_ENGINE = (
    yaie("serve", DEMO, says=ENGINE, status=1),
    yaie(*BATCH, says=ENGINE, status=1),
    yaie("pull", "org/name", says=ENGINE, status=1),
    python("import yaie; yaie.LLM", says=ENGINE, status=1),
)
ENGINE_WORKS = (yaie(*BATCH, says="1 requests, 0 failed"), python(LLM, says="RequestOutput"))
NOT_WHOLE = (
    yaie("run", DEMO, *ASK, says=WHOLE, status=1),
    yaie("up", DEMO, says=WHOLE, status=1),
)
WHOLE_WORKS = (yaie("run", DEMO, *ASK, says="TTFT"),)
NO_TORCH = python("import importlib.util as u; assert not u.find_spec('torch')")
TRACES = "--otlp-traces-endpoint=http://127.0.0.1:9"
NO_TRACES = yaie("serve", DEMO, TRACES, says='pip install -e ".[otel]"', status=1)
TRACES_WORK = python(
    "from yaie_api.tracing.settings import tracing_of as of;"
    "of('http://127.0.0.1:9', dict()).open('x', print).close()"
)
TYPED = {
    "": (*EVERYWHERE, *NO_ENGINE, *NOT_WHOLE, NO_TORCH),
    "operator,router": (
        *EVERYWHERE,
        *NO_ENGINE,
        yaie("run", DEMO, *ASK, says=ENGINE, status=1),
        python("import yaie_operator.__main__, yaie_router.__main__"),
        NO_TORCH,
    ),
    "engine": (*EVERYWHERE, *ENGINE_WORKS, *NOT_WHOLE, NO_TRACES),
    "router,otel": (*EVERYWHERE, *NO_ENGINE, TRACES_WORK, NO_TORCH),
    "all": (*EVERYWHERE, *ENGINE_WORKS, *WHOLE_WORKS, TRACES_WORK),
}


def own_part(file: PurePath) -> PurePath:
    """The outermost part of a file's path that belongs to its distribution alone."""
    depth = 1
    if file.parts[0] in SHARED:
        while (
            depth < len(file.parts)
            and not (SITE / Path(*file.parts[:depth]) / "__init__.py").exists()
        ):
            depth += 1
    return PurePath(*file.parts[:depth])


class Environment:
    """A virtual environment in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "venv", with_pip=True)
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        (self.site,) = (folder / "venv" / "lib").glob("python*/site-packages")
        foreign = ("PYTHONPATH", "VIRTUAL_ENV", "YAIE_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        own = {"HOME": str(folder), "OMP_NUM_THREADS": "1", "PATH": f"{self.bin}:/usr/bin:/bin"}
        self.env = kept | own | {"HF_HUB_OFFLINE": "1"}

    def link(self, names: Iterator[str]) -> None:
        """Put packages of this program's environment there, as links."""
        for name in names:
            for file in metadata.distribution(name).files or ():
                own = own_part(file)
                target, link = SITE / own, self.site / own
                if own.parts[0] not in ("..", "__pycache__") and target.exists():
                    link.parent.mkdir(parents=True, exist_ok=True)
                    if not link.exists():
                        link.symlink_to(target)

    def pip(self, *words: str) -> None:
        command = [str(self.bin / "python"), "-m", "pip", "install", "--quiet", *words]
        subprocess.run(command, cwd=ROOT, env=self.env, check=True, timeout=600)

    def type(self, typed: Typed) -> str:
        """Run a command; why it is not as it should be, or ""."""
        words = [word.format_map(self._places()) if "{" in word else word for word in typed.line]
        done = subprocess.run(
            words, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=120,
            stdin=subprocess.DEVNULL, check=False, executable=str(self.bin / words[0]),
        )  # fmt: skip
        told = done.stdout + done.stderr
        if done.returncode != typed.status:
            return f"status {done.returncode}: {told}"
        if typed.says not in told:
            return f"does not say {typed.says!r}: {told}"
        is_plain = typed.line[0] == "yaie"
        return f"a traceback: {told}" if is_plain and "Traceback" in told else ""

    def _places(self) -> dict[str, str]:
        batch = self.folder / "in.jsonl"
        batch.write_text(
            '{"custom_id": "1", "method": "POST", "url": "/v1/completions", '
            '"body": {"model": "yaie-demo", "prompt": "A pod is", "max_tokens": 4}}\n'
        )
        return {"batch": str(batch), "folder": str(self.folder)}


def needed(extras: frozenset[str], name: str = "yaie") -> Iterator[str]:
    """Names of the packages that an installation with these extras needs, `name` not among them."""
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [(name, extras)]
    while todo:
        one, wanted = todo.pop()
        if (one, wanted) in seen:
            continue
        seen.add((one, wanted))
        if one != name:
            yield one
        for text in metadata.distribution(one).requires or ():
            requirement = Requirement(text)
            contexts = [{"extra": extra} for extra in (*wanted, "")]
            if requirement.marker is None or any(map(requirement.marker.evaluate, contexts)):
                own = canonicalize_name(requirement.name), frozenset(requirement.extras)
                todo.append(own)


def main() -> int:
    parser = argparse.ArgumentParser(description="Install the project and use it.")
    parser.add_argument("--offline", action="store_true", help="ask no package index")
    args = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory(prefix="yaie-install-") as name:
        wheel = build(Path(name))
        for extra, typed in TYPED.items():
            failures += check(
                Path(name),
                f"wheel[{extra}]",
                f"{wheel}[{extra}]" if extra else str(wheel),
                extra,
                typed,
            )
        checkout = ["--editable", ".[engine]"]
        failures += check(Path(name), "checkout[engine]", checkout, "engine", ENGINE_WORKS[:1])
        if not args.offline:
            failures += check(Path(name), "index", str(wheel), None, TYPED[""])
    print(f"{failures} failed" if failures else "all passed")
    return 1 if failures else 0


def check(
    folder: Path,
    title: str,
    wanted: str | list[str],
    extra: str | None,
    typed: tuple[Typed, ...],
) -> int:
    """Install and type; returns the number of failures. `extra` None: packages of the index."""
    began = time.monotonic()
    own = folder / title.replace(",", "-")
    own.mkdir()
    environment = Environment(own)
    words = [wanted] if isinstance(wanted, str) else wanted
    if extra is not None:
        extras = frozenset(extra.split(",")) - {""}
        environment.link(needed(extras))
        for name in BUILD:
            environment.link(iter((name,)))
            environment.link(needed(frozenset(), name))
        words = ["--no-index", "--no-build-isolation", *words]
    environment.pip(*words)
    told = {" ".join(one.line)[:60]: why for one in typed if (why := environment.type(one))}
    for line, why in told.items():
        print(f"  {line}: {why}")
    print(f"{title}: {len(typed) - len(told)} of {len(typed)}, {time.monotonic() - began:.0f} s")
    return len(told)


def build(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True, timeout=300)
    (wheel,) = folder.glob("yaie-*.whl")
    return wheel


if __name__ == "__main__":
    sys.exit(main())
