"""NVIDIA Warp: which PTX belongs to the machine code that it loads."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.cpp_launches import run_scenario
from tests.support.fake_driver import modules
from warplens.driver.call_hooks import HandleKind, HandleOrigin
from warplens.frontends import nvidia_warp
from warplens.frontends.driver_calls import loaded_code
from warplens.frontends.intercept.woven_module import Unavailable
from warplens.profiling.profile import Profile
from warplens.ptx.symbols import plain_name

CODE = b"\x7fELF machine code"


class Module:
    """Warp's module: `load` finds or compiles machine code and hands its path to the build module."""

    def __init__(self, path: Path) -> None:
        self.path, self.compiled = path, list[Any]()
        self.options, self.resolved_options = {"block_dim": 256}, {256: {"mode": "release", "lineinfo": False}}
        self.execs: dict[Any, Any] = {}

    def load(self, device: Any, block_dim: int | None = None) -> Any:
        import warp._src.build as build

        return build.load_cuda(str(self.path), device)

    def _get_compile_arch(self, device: Any) -> int:
        return 90

    def _compile(self, device: Any, folder: str, name: str, arch: int, use_ptx: bool, options: dict[str, Any]) -> bool:
        self.compiled.append((arch, use_ptx, options))
        (Path(folder) / name).write_bytes(b".version 9.4\n.target sm_90\n\0")
        return True


@pytest.fixture(name="path")
def _path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if importlib.util.find_spec("warp") is not None:
        pytest.skip("Warp itself is here")
    (tmp_path / "m.cubin").write_bytes(CODE)
    parts = {
        "warp": {}, "warp___src": {}, "warp___src__context": {"Module": Module},
        "warp___src__build": {"load_cuda": lambda path, device: 77},
    }  # fmt: skip
    monkeypatch.setattr(loaded_code, "_compiled", {})
    monkeypatch.setattr(loaded_code, "_by_symbol", {})
    with modules(monkeypatch, **parts):
        yield tmp_path / "m.cubin"


def text_of(code: bytes) -> str:
    import ctypes

    kept = ctypes.create_string_buffer(code, len(code))
    origin = HandleOrigin(HandleKind.FUNCTION, "k", 1, ctypes.addressof(kept), len(code))
    return loaded_code.ptx_source(origin, "k", "9.0")()


def test_a_module_is_compiled_to_ptx_with_its_own_options(path: Path) -> None:
    module, device = Module(path), SimpleNamespace(is_cuda=True)
    undo = nvidia_warp.install()
    assert module.load(device) == 77
    assert module.compiled == [], "nothing is compiled before a kernel is launched"
    assert text_of(CODE).startswith(".version 9.4")
    assert module.compiled == [(90, True, {"mode": "release", "lineinfo": True})]
    while undo:
        undo.pop()()
    assert "wrapped" not in Module.load.__qualname__


def test_modules_that_were_loaded_before_are_known(path: Path) -> None:
    module, device = Module(path), SimpleNamespace(is_cuda=True)
    module.execs[1, 256] = SimpleNamespace(device=device, binary_path=str(path), kernel_hooks={"axpy_e0699ad6": None})
    for one in nvidia_warp.install():
        one()
    assert text_of(CODE).startswith(".version 9.4")
    assert loaded_code.ptx_source(None, "axpy_e0699ad6_cuda_kernel_backward", "9.0")().startswith(".version 9.4")


def test_a_module_that_warp_cannot_compile_says_so(path: Path) -> None:
    module = Module(path)
    module._compile = lambda *given: (_ for _ in ()).throw(RuntimeError("no LTO for PTX"))  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="Warp does not compile it to PTX: no LTO for PTX"):
        nvidia_warp.ptx_of_module(module, None, 256)


def test_other_versions_and_machines_are_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = Profile(auto="all")
    monkeypatch.setattr(nvidia_warp, "why_not", lambda: "no C compiler found (cc, gcc or clang)")
    assert nvidia_warp.start(profile) is None
    assert "its kernels run unmarked: no C compiler found" in profile.notes["warp"][0]
    profile = Profile(auto="all")
    monkeypatch.setattr(nvidia_warp, "why_not", lambda: "")
    monkeypatch.delattr("warp._src.context.Module")
    assert nvidia_warp.start(profile) is None
    assert "warplens does not know this version of it" in profile.notes["warp"][0]


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("axpy_e0699ad6_cuda_kernel_forward", "axpy"),
        ("axpy_e0699ad6_cuda_kernel_backward", "axpy (backward)"),
        ("integrate_cuda_kernel_forward", "integrate"),
    ],
)
def test_kernels_have_the_names_of_their_functions(symbol: str, name: str) -> None:
    assert plain_name(symbol) == name


@pytest.mark.skipif(importlib.util.find_spec("warp") is None, reason="needs warp-lang")
@pytest.mark.parametrize(("when", "fired"), [("inside", [True, True, False]), ("before", [False, True, True, False])])
def test_warp_itself_launches_woven_kernels(when: str, fired: list[bool]) -> None:
    """Its library is real; only the driver is not, and the interpreter runs the kernels."""
    told = run_scenario("launches", when, module="warp_scenarios")
    assert told["right"]
    assert told["fired"] == fired
    assert told["seen"] == {"axpy": 2}
    assert "line warp_scenarios.py:25" in told["regions"], "regions have the lines of the Python source"
