"""Builds the C++ and CUDA kernels ahead of time, and finds built libraries.

    python -m yaie_kernels.cuda.build [--cpu-only] [--arch 9.0] [--output DIR]

A library's file name is its key: torch's version, the target ("cpu" or sm numbers) and a hash of
the sources. `load` looks for a fitting name in $YAIE_CUDA_KERNELS, or in the user's cache folder if
that is not set. It never compiles, so serving never waits for a compiler.
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
_LEAST_SM = 80  # the kernels need asynchronous copies and bfloat16 tensor cores


class BuildError(RuntimeError):
    """The kernels cannot be built here; the message says what is missing."""


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of built libraries: $YAIE_CUDA_KERNELS, or the user's cache folder."""
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
    """Twelve hex digits of a hash over all sources and headers."""
    digest = hashlib.sha256()
    for path in sorted([*(_HERE / "csrc").iterdir(), *(_HERE / "include/yaie").iterdir()]):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def library_name(archs: Iterable[int]) -> str:
    """File name of a build for these sm numbers (none: CPU only) and the installed torch."""
    target = "+".join(f"sm{arch}" for arch in sorted(archs)) or "cpu"
    return f"yaie-torch{torch.__version__}-{target}-{source_hash()}.so"


def find(where: Path, wanted: int | None) -> Path | None:
    """The best library in folder `where` for sm number `wanted` (None: the CPU), if any.

    Code for an sm number also runs on higher ones of the same major version.
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
    """Rank of a build for `archs` on the device, larger is better; None: it cannot run there."""
    if capability is None:
        return -len(archs)  # prefer the smallest library: the CPU code is the same in all
    return max((a for a in archs if a <= capability and a // 10 == capability // 10), default=None)


@cache
def load() -> Path | None:
    """Load a fitting library as torch.ops.yaie and return its path; None if there is none.

    The result is cached, so later calls cost nothing.
    """
    path = find(folder(), capability())
    if path is not None:
        open_library(path)
    return path


def open_library(path: Path) -> None:
    """Register the library's operations and their fake versions; call once per process."""
    torch.ops.load_library(path)  # type: ignore[no-untyped-call]  # torch's has no types
    fake.register()


def missing() -> str:
    """The error message for kernels that were requested but are not built."""
    return (
        f"no built CUDA kernels for torch {torch.__version__} in {folder()}: build them with "
        "`python -m yaie_kernels.cuda.build`, or name their folder in YAIE_CUDA_KERNELS"
    )


def capability() -> int | None:
    """The sm number of this process's CUDA device; None if there is no device."""
    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


def build(output: Path, archs: Sequence[int]) -> Path:
    """Compile to output/library_name(archs), which appears only when it is complete.

    Raises:
        BuildError: A tool is missing, an architecture is too old, or the compiler failed.

    """
    target = output / library_name(archs)
    if target.exists():
        return target
    if old := [arch for arch in archs if arch < _LEAST_SM]:
        raise BuildError(f"sm{old[0]} is too old: these kernels need sm{_LEAST_SM} or newer")
    from torch.utils import cpp_extension  # imports setuptools; only builds need it

    compiler = os.environ.get("CXX", "c++")  # the compiler that torch's builder uses
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
    """Run torch's extension builder: in parallel if ninja is installed, else file by file."""
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
    """Extra folders in which the linker finds the CUDA runtime.

    A toolkit from wheels has it in `lib` under a versioned name only; this links it into `scratch`
    under the name that the linker looks for.
    """
    versions = sorted((cuda_home / "lib").glob("libcudart.so.*"))
    if not versions or (cuda_home / "lib64/libcudart.so").exists():
        return []
    (scratch / "libcudart.so").symlink_to(versions[-1])
    return [str(scratch)]


def _sm(arch: int) -> str:
    """Name of an architecture for nvcc. 90a has warpgroup products, and all 9.0 devices run it."""
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
    """Parse a list such as "8.0;9.0" (the form of TORCH_CUDA_ARCH_LIST) into sm numbers.

    Raises:
        BuildError: A word is not a number of this form.

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
