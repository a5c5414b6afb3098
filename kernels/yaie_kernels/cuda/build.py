"""Builds the C++ and CUDA kernels ahead of time, and finds a library that was built.

    python -m yaie_kernels.cuda.build [--cpu-only] [--arch 9.0] [--output DIR]

A library's name is its key: torch's version, what it was built for ("cpu" or sm numbers) and a hash
of the sources. `load` looks for the name that fits in $YAIE_CUDA_KERNELS, or in a cache folder of
the user's; it never compiles, so serving never waits for a compiler.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import torch

from yaie_kernels.cuda import fake

_HERE = Path(__file__).resolve().parent
_LEAST_SM = 80  # asynchronous copies and bfloat16 on tensor cores


class BuildError(RuntimeError):
    """The kernels cannot be built here; the message says what is missing."""


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where libraries are kept: $YAIE_CUDA_KERNELS, or a cache folder of the user's."""
    if chosen := environ.get("YAIE_CUDA_KERNELS"):
        return Path(chosen)
    root = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".cache"
    return Path(root) / "yaie" / "kernels"


def sources(*, cuda: bool) -> list[Path]:
    """The files to compile."""
    found = sorted((_HERE / "csrc").iterdir())
    return [path for path in found if path.suffix == ".cpp" or (cuda and path.suffix == ".cu")]


@cache
def source_hash() -> str:
    """Twelve hex digits that change with any source or header."""
    digest = hashlib.sha256()
    for path in sorted([*(_HERE / "csrc").iterdir(), *(_HERE / "include/yaie").iterdir()]):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def library_name(archs: Iterable[int]) -> str:
    """The file of a build for these sm numbers (none: the CPU alone) and this torch."""
    target = "+".join(f"sm{arch}" for arch in sorted(archs)) or "cpu"
    return f"yaie-torch{torch.__version__}-{target}-{source_hash()}.so"


def find(where: Path, wanted: int | None) -> Path | None:
    """The library there that serves a device of the wanted sm number (None: the CPU).

    Code of an sm number runs on later ones of the same major version.
    """
    front, back = library_name([]).rsplit("cpu", 1)
    best: tuple[int, Path] | None = None
    for path in where.glob("yaie-torch*.so"):
        if not (path.name.startswith(front) and path.name.endswith(back)):
            continue
        target = path.name.removeprefix(front).removesuffix(back)
        fit = _fit([int(arch) for arch in re.findall(r"sm(\d+)", target)], wanted)
        if fit is not None and (best is None or fit > best[0]):
            best = fit, path
    return best[1] if best else None


def _fit(archs: Sequence[int], capability: int | None) -> int | None:
    """How well a build for `archs` serves the device; None: not at all."""
    if capability is None:
        return -len(archs)  # the smallest: its CPU half is the same
    return max((a for a in archs if a <= capability and a // 10 == capability // 10), default=None)


@cache
def load() -> Path | None:
    """Make torch.ops.yaie of a built library; None, at no cost later, where there is none."""
    path = find(folder(), capability())
    if path is not None:
        open_library(path)
    return path


def open_library(path: Path) -> None:
    """Register its operations, and the shapes of their results; once in a process."""
    torch.ops.load_library(path)  # type: ignore[no-untyped-call]  # torch's has no types
    fake.register()


def missing() -> str:
    """What to tell somebody who asked for kernels that are not built."""
    return (
        f"no built CUDA kernels for torch {torch.__version__} in {folder()}: build them with "
        "`python -m yaie_kernels.cuda.build`, or name their folder in YAIE_CUDA_KERNELS"
    )


def capability() -> int | None:
    """The sm number of this process's device, None where it has none."""
    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


def build(output: Path, archs: Sequence[int]) -> Path:
    """Compile into output/library_name(archs), which appears whole or not at all.

    Raises:
        BuildError: A tool is missing, an architecture is too old, or the compiler failed.

    """
    target = output / library_name(archs)
    if target.exists():
        return target
    if old := [arch for arch in archs if arch < _LEAST_SM]:
        raise BuildError(f"sm{old[0]} is too old: these kernels need sm{_LEAST_SM} or newer")
    from torch.utils import cpp_extension  # imports setuptools; only builds need it

    compiler = os.environ.get("CXX", "c++")  # as torch's builder chooses
    _check_tools(compiler, cpp_extension.CUDA_HOME, cuda=bool(archs))
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output, prefix=".build-") as scratch:
        try:
            built = _compile(Path(scratch), archs)
        except (RuntimeError, SystemExit, subprocess.SubprocessError) as error:
            raise BuildError(f"the compiler failed: {error}") from error
        built.replace(target)
    return target


def _compile(scratch: Path, archs: Sequence[int]) -> Path:
    """Run torch's extension builder: in parallel where ninja is, else file by file."""
    import setuptools
    from torch.utils import cpp_extension

    cuda = bool(archs)
    kind = cpp_extension.CUDAExtension if cuda else cpp_extension.CppExtension
    codes = [f"-gencode=arch=compute_{sm},code=sm_{sm}" for sm in map(_sm, archs)]
    extension = kind(  # type: ignore[no-untyped-call]  # torch's has no types
        name="yaie_ops",
        library_dirs=_runtime(Path(cpp_extension.CUDA_HOME or ""), scratch) if cuda else [],
        sources=[str(path) for path in sources(cuda=cuda)],
        include_dirs=[str(_HERE / "include")],
        extra_compile_args={
            "cxx": ["-O3", "-g0", *(["-DYAIE_WITH_CUDA"] if cuda else [])],
            "nvcc": ["-O3", "--expt-relaxed-constexpr", "-lineinfo", *codes],
        },
    )
    command = cpp_extension.BuildExtension.with_options(  # type: ignore[no-untyped-call]  # same
        use_ninja=shutil.which("ninja") is not None, no_python_abi_suffix=True
    )(setuptools.Distribution({"name": "yaie_ops", "ext_modules": [extension]}))
    command.build_lib = command.build_temp = str(scratch)
    command.ensure_finalized()
    command.run()
    return scratch / "yaie_ops.so"


def _runtime(cuda_home: Path, scratch: Path) -> list[str]:
    """Folders in which the linker finds the CUDA runtime, beside those that a toolkit has: a
    toolkit from wheels has it in `lib`, under the name of its version alone.
    """
    versions = sorted((cuda_home / "lib").glob("libcudart.so.*"))
    if not versions or (cuda_home / "lib64/libcudart.so").exists():
        return []
    (scratch / "libcudart.so").symlink_to(versions[-1])
    return [str(scratch)]


def _sm(arch: int) -> str:
    """As nvcc calls it; sm_90a has the warpgroup products, and runs on every 9.0 device."""
    return "90a" if arch == 90 else str(arch)


def _check_tools(compiler: str, cuda_home: str | None, *, cuda: bool) -> None:
    if shutil.which(compiler) is None:
        raise BuildError(f"no C++ compiler {compiler!r}: install g++ (Debian: apt-get install g++)")
    if cuda and (cuda_home is None or shutil.which("nvcc", path=f"{cuda_home}/bin") is None):
        raise BuildError(
            f"no nvcc: install the CUDA {torch.version.cuda} toolkit and set CUDA_HOME to it, "
            "or build for the CPU with --cpu-only"
        )


def parse_archs(text: str) -> list[int]:
    """The sm numbers of a list as "8.0;9.0" (torch's form).

    Raises:
        BuildError: The list holds something else.

    """
    archs = []
    for word in re.split(r"[;, ]+", text.strip()):
        found = re.fullmatch(r"(\d+)\.(\d)", word)
        if found is None:
            raise BuildError(f"architecture {word!r}: want numbers as 8.0;9.0")
        archs.append(int(found[1]) * 10 + int(found[2]))
    return sorted(set(archs))


def _archs(options: argparse.Namespace) -> list[int]:
    if options.cpu_only:
        return []
    if text := options.arch or os.environ.get("TORCH_CUDA_ARCH_LIST"):
        return parse_archs(text)
    here = capability()
    if here is None:
        raise BuildError("no CUDA device to build for: name one (--arch 9.0), or use --cpu-only")
    return [here]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m yaie_kernels.cuda.build", description="Build the C++ and CUDA kernels."
    )
    parser.add_argument("--cpu-only", action="store_true", help="the C++ versions alone, by g++")
    parser.add_argument("--arch", help="compute capabilities, as 8.0;9.0; default: this device's")
    parser.add_argument("--output", type=Path, default=folder(), help="default: %(default)s")
    options = parser.parse_args()
    try:
        path = build(options.output, _archs(options))
    except BuildError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command prints
        return 1
    print(path)  # noqa: T201 - same
    return 0


if __name__ == "__main__":
    sys.exit(main())
