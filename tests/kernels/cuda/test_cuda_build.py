"""A library is found by what it was built from and for, and never built while one looks."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from yaie_kernels.cuda import build


def touch(folder: Path, *archs: int) -> Path:
    path = folder / build.library_name(archs)
    path.touch()
    return path


def test_a_library_is_named_by_torch_target_and_sources() -> None:
    name = build.library_name([90, 80])
    assert name == f"yaie-torch{torch.__version__}-sm80+sm90-{build.source_hash()}.so"
    assert "-cpu-" in build.library_name([])


def test_the_nearest_older_architecture_of_the_same_major_is_found(tmp_path: Path) -> None:
    old, new = touch(tmp_path, 80), touch(tmp_path, 86, 90)
    assert build.find(tmp_path, 80) == old
    assert build.find(tmp_path, 89) == new
    assert build.find(tmp_path, 90) == new
    assert build.find(tmp_path, 100) is None
    assert build.find(tmp_path, 75) is None


def test_the_cpu_is_served_by_any_build_and_best_by_its_own(tmp_path: Path) -> None:
    with_cuda = touch(tmp_path, 90)
    assert build.find(tmp_path, None) == with_cuda
    own = touch(tmp_path)
    assert build.find(tmp_path, None) == own
    assert build.find(tmp_path, 90) == with_cuda


def test_builds_of_other_sources_or_another_torch_are_not_found(tmp_path: Path) -> None:
    name = build.library_name([])
    (tmp_path / name.replace(build.source_hash(), "0" * 12)).touch()
    (tmp_path / name.replace(torch.__version__, "1.0")).touch()
    assert build.find(tmp_path, None) is None
    assert build.find(tmp_path / "missing", None) is None


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"YAIE_CUDA_KERNELS": "/k", "XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/k"),
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/yaie/kernels"),
        ({"HOME": "/h"}, "/h/.cache/yaie/kernels"),
    ],
)
def test_the_folder_is_the_named_one_or_a_cache_of_the_user(
    environ: dict[str, str], folder: str
) -> None:
    assert build.folder(environ) == Path(folder)


def test_architectures_are_read_as_torch_writes_them() -> None:
    assert build.parse_archs("9.0;8.0, 10.0") == [80, 90, 100]
    for text in ("9", "sm90", "9.0+PTX", ""):
        with pytest.raises(build.BuildError, match="want numbers as"):
            build.parse_archs(text)


def test_an_architecture_without_tensor_cores_for_bfloat16_is_refused(tmp_path: Path) -> None:
    with pytest.raises(build.BuildError, match="sm75 is too old"):
        build.build(tmp_path, [75])


def test_a_missing_compiler_is_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(build.BuildError, match="apt-get install g\\+\\+"):
        build.build(tmp_path, [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(shutil.which("nvcc") is not None, reason="there is an nvcc")
def test_a_missing_nvcc_is_named_with_what_to_install(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "yaie_kernels.cuda.build", "--arch", "9.0"]
    done = subprocess.run(
        [*command, "--output", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "install the CUDA" in done.stderr
    assert "--cpu-only" in done.stderr


def test_the_runtime_of_a_toolkit_from_wheels_gets_the_name_that_linkers_look_for(
    tmp_path: Path,
) -> None:
    toolkit, scratch = tmp_path / "toolkit", tmp_path / "scratch"
    for folder in (toolkit / "lib", toolkit / "lib64", scratch):
        folder.mkdir(parents=True)
    (toolkit / "lib/libcudart.so.13").touch()
    assert build._runtime(toolkit, scratch) == [str(scratch)]
    assert (scratch / "libcudart.so").resolve() == toolkit / "lib/libcudart.so.13"
    (toolkit / "lib64/libcudart.so").touch()
    assert build._runtime(toolkit, scratch) == [], "a toolkit has it where linkers look"


def test_a_build_that_is_there_is_not_built_again(library: Path) -> None:
    archs = [] if not torch.cuda.is_available() else [build.capability() or 0]
    before = library.stat().st_mtime_ns
    assert build.build(library.parent, archs) == library
    assert library.stat().st_mtime_ns == before
