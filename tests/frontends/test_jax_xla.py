"""JAX: the ptxas that XLA runs keeps the PTX of what it assembles, and nothing of it is left behind."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.cpp_launches import run_scenario
from tests.support.fake_driver import modules
from warplens.driver.call_hooks import CallKind
from warplens.frontends import jax_xla
from warplens.frontends.assembled_ptx import ptx_store, ptxas_in_front
from warplens.frontends.driver_calls import frontend
from warplens.profiling.profile import Profile

PTX = ".version 8.8\n.target sm_90\n.visible .entry k() { ret; }\n"
needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax_plugins") is None, reason="needs jax: make test-frontends")


class CompileOptions:
    def __init__(self) -> None:
        self.env_option_overrides = [("xla_own", "1")]
        debug = SimpleNamespace(xla_gpu_enable_llvm_module_compilation_parallelism=True)
        self.executable_build_options = SimpleNamespace(debug_options=debug)


@pytest.fixture(name="jax")
def _jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What JAX has of what is wrapped, and a toolkit whose ptxas copies its input."""
    if importlib.util.find_spec("jax") is not None:
        pytest.skip("JAX itself is here")
    toolkit = tmp_path / "toolkit"
    for folder in ("bin", "nvvm"):
        (toolkit / folder).mkdir(parents=True)
    (toolkit / "nvvm" / "libdevice.10.bc").write_text("bitcode")
    (toolkit / "bin" / "nvlink").write_text("linker")
    (toolkit / "bin" / "ptxas").write_text(
        '#!/bin/sh\n[ "$1" = fail ] && exit 7\n[ "$2" = -o ] && echo "code of $1" > "$3"\n'
    )
    (toolkit / "bin" / "ptxas").chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", os.environ["PATH"])  # it is put back after the test, whatever the test does to it
    monkeypatch.setattr(jax_xla, "why_not", lambda: "")
    compiler = {
        "get_compile_options": lambda *given, **named: CompileOptions(),
        "backend_compile_and_load": lambda *given: len(frontend._tuning),
    }
    parts = {
        "jax": {}, "jax___src": {}, "jax___src__lib": {"cuda_path": str(toolkit)}, "jax___src__compiler": compiler,
        "jax___src__compilation_cache": {"is_cache_used": lambda backend: True,
                                         "is_persistent_cache_enabled": lambda: True},
    }  # fmt: skip
    with modules(monkeypatch, **parts) as made:
        yield SimpleNamespace(**{name.rpartition(".")[2]: module for name, module in made.items()}, toolkit=toolkit)


def assemble(folder: Path, ptxas: str) -> bytes:
    (folder / "k.ptx").write_text(PTX)
    subprocess.run([ptxas, str(folder / "k.ptx"), "-o", str(folder / "k.cubin")], check=True)
    return (folder / "k.cubin").read_bytes()


@pytest.mark.parametrize("place", ["JAX's folder", "PATH"])
def test_ptx_that_xla_assembles_is_kept(jax: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    if place == "PATH":
        monkeypatch.setenv("PATH", f"{jax.toolkit}/bin:{os.environ['PATH']}")
        jax.lib.cuda_path = None
    before = jax.lib.cuda_path, os.environ["PATH"]
    profile = Profile(auto="all")
    stop = jax_xla.start(profile)
    assert stop is not None
    assert profile.notes == {}
    found = shutil.which("ptxas") if place == "PATH" else f"{jax.lib.cuda_path}/bin/ptxas"
    assert found is not None
    assert Path(found) != jax.toolkit / "bin" / "ptxas"
    code = assemble(tmp_path, found)
    assert code == f"code of {tmp_path}/k.ptx\n".encode(), "the real one wrote it"
    assert ptx_store.find([code + bytes(8)]) == PTX, "loaders may pad code with zeros"
    if place != "PATH":
        assert (Path(jax.lib.cuda_path) / "nvvm" / "libdevice.10.bc").read_text() == "bitcode"
        assert (Path(jax.lib.cuda_path) / "bin" / "nvlink").read_text() == "linker"
    assert subprocess.run([found, "fail"]).returncode == 7
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    stop()
    assert (jax.lib.cuda_path, os.environ["PATH"]) == (before[0], f"{tmp_path}:{before[1]}")
    assert assemble(tmp_path, found) == code, "XLA remembers where it found ptxas, also after the profile"


def test_a_toolkit_that_is_updated_in_its_place_has_its_new_files(jax: Any) -> None:
    for name in ("nvlink", "fatbinary"):
        (jax.toolkit / "bin" / name).write_text(name)
        stop = jax_xla.start(Profile(auto="all"))
        assert stop is not None
        assert (Path(jax.lib.cuda_path) / "bin" / name).read_text() == name
        stop()


def test_a_python_that_is_gone_does_not_stop_the_assembler(
    jax: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    stop = jax_xla.start(Profile(auto="all"))
    assert stop is not None
    assert assemble(tmp_path, f"{jax.lib.cuda_path}/bin/ptxas").startswith(b"code of")
    stop()


def test_a_warplens_that_is_gone_does_not_stop_the_assembler(
    jax: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ptxas_in_front, "_SOURCE", str(tmp_path / "gone"))
    stop = jax_xla.start(Profile(auto="all"))
    assert stop is not None
    assert assemble(tmp_path, f"{jax.lib.cuda_path}/bin/ptxas").startswith(b"code of")
    stop()


def test_kernels_are_compiled_in_view_and_without_command_buffers(jax: Any) -> None:
    stop = jax_xla.start(Profile(auto="all"))
    assert stop is not None
    made = jax.compiler.get_compile_options(num_replicas=1)
    assert made.env_option_overrides == [("xla_own", "1"), ("xla_gpu_enable_command_buffer", "")]
    assert not made.executable_build_options.debug_options.xla_gpu_enable_llvm_module_compilation_parallelism
    assert not jax.compilation_cache.is_cache_used(None)
    assert not jax.compilation_cache.is_persistent_cache_enabled()
    assert jax.compiler.backend_compile_and_load() == 1, "kernels that XLA times while it tunes are left alone"
    stop()
    assert jax.compiler.backend_compile_and_load() == 0
    assert jax.compilation_cache.is_cache_used(None)
    assert jax.compiler.get_compile_options().env_option_overrides == [("xla_own", "1")]


@pytest.mark.parametrize("changed", ["no such option", "no options at all"])
def test_options_of_other_versions_do_not_stop_the_compiler(
    jax: Any, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    made = CompileOptions()
    del made.executable_build_options.debug_options.xla_gpu_enable_llvm_module_compilation_parallelism
    given = made if changed == "no such option" else object()
    monkeypatch.setattr(jax.compiler, "get_compile_options", lambda: given)
    profile = Profile(auto="all")
    stop = jax_xla.start(profile)
    assert stop is not None
    assert jax.compiler.get_compile_options() is given
    assert bool(profile.notes) == (given is not made)
    stop()


def test_launches_of_a_compiler_that_tunes_are_left_alone() -> None:
    answered = frontend.DriverCalls.__new__(frontend.DriverCalls)
    answered._follow = lambda call: pytest.fail("it was followed")  # type: ignore[method-assign]
    with frontend.tuning_in_cpp():
        answered._answer(SimpleNamespace(kind=CallKind.LAUNCH))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [("version", "warplens does not know this version of it"), ("ptxas", "no ptxas was found"),
     ("hooks", "no C compiler found"), ("disk", "no ptxas can be put in front of XLA's"),
     ("store", "no ptxas can be put in front of XLA's")],
)  # fmt: skip
def test_what_is_missing_is_named_and_the_program_runs(
    jax: Any, monkeypatch: pytest.MonkeyPatch, broken: str, reason: str
) -> None:
    if broken == "version":
        monkeypatch.delattr(jax.compiler, "backend_compile_and_load")
    if broken == "ptxas":
        monkeypatch.setattr(shutil, "which", lambda name: None)
    if broken == "hooks":
        monkeypatch.setattr(jax_xla, "why_not", lambda: "no C compiler found")
    if broken == "disk":
        monkeypatch.setattr(jax_xla, "put_in_front", lambda *given: (_ for _ in ()).throw(OSError(28, "No space left")))
    if broken == "store":
        ptx_store._folder().parent.mkdir(parents=True)
        ptx_store._folder().write_text("not a folder")
    before = jax.lib.cuda_path, os.environ["PATH"]
    profile = Profile(auto="all")
    assert jax_xla.start(profile) is None
    assert f"its kernels run unmarked: {reason}" in profile.notes["jax"][0]
    assert (jax.lib.cuda_path, os.environ["PATH"]) == before


def test_nothing_is_done_for_profiles_without_automatic_marks(jax: Any) -> None:
    with nullcontext(os.environ["PATH"]) as before:
        assert jax_xla.start(Profile()) is None
        assert os.environ["PATH"] == before


@needs_jax
@pytest.mark.parametrize("kernel", ["triton_add", "triton_matmul", "mosaic_add", "fusion"])
def test_jax_itself_compiles_kernels_that_are_woven(tmp_path: Path, kernel: str) -> None:
    """XLA compiles for an H100 that is not there; the driver is a C library, and the interpreter runs the kernel."""
    told = run_scenario("compiled", kernel, module="jax_scenarios", XDG_CACHE_HOME=str(tmp_path),
                        JAX_SKIP_CUDA_CONSTRAINTS_CHECK="1")  # fmt: skip
    assert told["woven"], told
    assert told["registers"] > 0
    assert told["spills"] == 0
    assert told["sites"]
