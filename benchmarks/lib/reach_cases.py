"""The cases of benchmarks/reach.py: one function for each front end and way to launch.

A case returns a row, or raises `NotHere` with the reason why this machine cannot run it. Each runs in a process of its
own, so that one that fails leaves the others alone. A new front end adds a function with `@case`.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import warplens as wl
from benchmarks.lib.gpu_programs import KERNELS
from warplens.record.cost_keys import SLOWDOWN

Row = dict[str, Any]
CASES: dict[str, tuple[str, Callable[[Path], Row]]] = {}
RECORDED, TIMES = 6, 30
"""Launches to record of each kernel, and launches in all: the rest are timed without marks."""
LIMIT_S = 60
"""Seconds that a case may take."""
SLOW_CASES = {"helion": 120, "tilelang": 200, "cutile": 150, "nvidia_warp": 120, "nvidia_warp_carried": 100}
"""Cases that unpack a library and compile for longer."""
_N, _SIDE = 1 << 20, 512
_WARPS = {"polynomial": 264 * 8, "tiled_gemm": 1024 * 8, "bit_sum": 132 * 8}
"""Of one launch of each kernel in reach.cu."""


class NotHere(Exception):
    """This machine cannot run a case."""


def case(name: str, what: str) -> Callable[[Callable[[Path], Row]], Callable[[Path], Row]]:
    """Register a case; `what` is the first column of its row."""

    def register(function: Callable[[Path], Row]) -> Callable[[Path], Row]:
        CASES[name] = what, function
        return function

    return register


def described(trace: Any, profile: Any, warps: dict[str, int]) -> Row:
    """What was recorded of each kernel, and whether that is all there was."""
    kernels: dict[str, Row] = {}
    for number, launch in enumerate(trace.meta.launches):
        found = kernels.setdefault(launch.kernel, {"recorded": 0, "tracks": [], "slowdown": None})
        found["recorded"] += 1
        found["registers"] = launch.extra.get("registers")
        found["slowdown"] = launch.cost.get(SLOWDOWN, found["slowdown"])
        rows = trace.spans.filter(_launch_is(number))
        found["tracks"].append(len({(r["block"], r["warp"]) for r in rows.select(["block", "warp"]).to_pylist()}))
    for name, found in kernels.items():
        found["launches"] = profile.seen.get(name)
        found["complete"] = set(found.pop("tracks")) == {warps[name]} if name in warps else None
    losses = trace.meta.losses
    whole = all(found["complete"] is not False for found in kernels.values())
    return {
        "kernels": kernels, "spans": len(trace.spans), "records_lost": losses.records_lost, "notes": profile.notes,
        "complete": bool(kernels) and not losses.records_lost and whole,
    }  # fmt: skip


def _launch_is(number: int) -> Any:
    import pyarrow.compute as pc

    return pc.field("launch") == number


def built(out: Path, *options: str, name: str) -> Path:
    """reach.cu, compiled for this GPU by the first case that needs it."""
    if not shutil.which("nvcc"):
        raise NotHere("nvcc is not installed")
    made = out.parent / name
    if made.exists():
        return made
    flags = ["-O3", "-std=c++17", f"-arch={os.environ.get('REACH_ARCH', 'sm_90')}", "-lineinfo", "-cudart", "static"]
    subprocess.run(["nvcc", *flags, *options, str(KERNELS / "reach.cu"), "-o", str(made)], check=True)
    return made


class Library:
    """reach.cu as a shared library."""

    def __init__(self, out: Path) -> None:
        path = built(out, "-shared", "-Xcompiler", "-fPIC", name="libreach.so")
        self._calls = ctypes.CDLL(str(path))

    def prepare(self) -> None:
        self._check(self._calls.reach_prepare())

    def load(self, text: str) -> None:
        self._check(self._calls.reach_load(text.encode() + b"\0"))

    def run(self, way: str, times: int = TIMES) -> bytes:
        self._check(self._calls.reach_clear())
        self._check(self._calls.reach_launch(way.encode(), times))
        out = ctypes.create_string_buffer(4 * (_N + _SIDE * _SIDE + 1))
        self._check(self._calls.reach_result(out))
        return out.raw

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise RuntimeError(f"CUDA error {status}")


def _recorded(library: Library, way: str, *, before: Callable[[], None] = lambda: None, times: int = TIMES) -> Row:
    """Run one way inside a profile, and the same after it without."""
    with wl.profile(auto=True, launches=RECORDED) as profile:
        before()
        marked = library.run(way, times)
    plain = library.run(way, times)
    return {**described(profile.trace, profile, _WARPS), "identical": marked == plain and any(plain)}


@case("cpp_runtime", "C++, CUDA runtime linked statically")
def runtime(out: Path) -> Row:
    library = Library(out)
    return _recorded(library, "runtime", before=library.prepare)


@case("cpp_warm", "C++, used before the profile began")
def warm(out: Path) -> Row:
    library = Library(out)
    library.prepare()
    library.run("runtime")
    return _recorded(library, "runtime")


@case("cpp_threads", "C++, launched in threads of its own")
def threads(out: Path) -> Row:
    library = Library(out)
    return _recorded(library, "thread", before=library.prepare)


@case("cpp_graph", "C++, CUDA graph")
def graph(out: Path) -> Row:
    library = Library(out)
    return _recorded(library, "graph", before=library.prepare)


@case("cpp_packed", "C++, driver API with packed arguments")
def packed(out: Path) -> Row:
    library = Library(out)
    text = built(out, "-ptx", name="reach.ptx").read_text()

    def before() -> None:
        library.prepare()
        library.load(text)

    return _recorded(library, "packed", before=before)


@case("cpp_beside_torch", "C++, in a process that uses PyTorch")
def beside_torch(out: Path) -> Row:
    if importlib.util.find_spec("torch") is None:
        raise NotHere("torch is not installed")
    import torch

    library = Library(out)
    a = torch.rand(512, 512, device="cuda")
    torch.cuda.synchronize()

    def before() -> None:
        library.prepare()
        for _ in range(50):
            (a @ a).relu_().sum()
        torch.cuda.synchronize()

    return {**_recorded(library, "runtime", before=before), "version": torch.__version__}


@case("cpp_program", "C++ program, `warplens run --auto ./program`")
def program(out: Path) -> Row:
    path, trace = built(out, name="reach"), out / "program.warplens"
    plain = subprocess.run([str(path)], check=True, capture_output=True, text=True, timeout=20).stdout
    options = ["--auto", "--force", "--blocks", "all", "--overhead", "any"]
    options += ["--launches", str(RECORDED), "-o", str(trace)]
    command = [sys.executable, "-m", "warplens", "run", *options, str(path)]
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        printed, said = running.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGABRT)  # the traceback says where it hangs
        printed, said = running.communicate(timeout=5)
    if running.returncode or not trace.exists():
        print(said, file=sys.stderr)
        raise RuntimeError(f"exit code {running.returncode}: {' '.join(said[-1500:].split())}")
    told = SimpleNamespace(seen={}, notes={})
    return {**described(wl.load(trace), told, _WARPS), "identical": printed == plain, "said": said[-2000:]}


@case("cute_tvm_ffi", "CuTe DSL through TVM-FFI")
def cute_tvm_ffi(out: Path) -> Row:
    for name in ("cutlass", "tvm_ffi", "torch"):
        if importlib.util.find_spec(name) is None:
            raise NotHere(f"{name} is not installed")
    from benchmarks.lib.reach_cute import run_tvm_ffi

    return {**run_tvm_ffi(described), "version": importlib.metadata.version("nvidia-cutlass-dsl")}


@case("nvidia_warp", "NVIDIA Warp")
def nvidia_warp(out: Path) -> Row:
    return dict(_packed("warp", "warp").run(_every_warp, RECORDED, TIMES, str(out / "warp-cache")))


@case("nvidia_warp_carried", "NVIDIA Warp, launches of its examples carried as PTX, by cuda.bindings")
def nvidia_warp_carried(out: Path) -> Row:
    from benchmarks.lib.carried_kernels import run
    from benchmarks.lib.reach_tile import KITS

    path = KITS / "warp_launches.json"
    for needed, is_there in (("torch", _is_installed("torch")), (str(path), path.exists())):
        if not is_there:
            raise NotHere(f"{needed} is not here")
    return run(path, _every_warp, RECORDED, TIMES)


def _packed(name: str, module: str, *instead: str) -> Any:
    """Functions that run the kernels of a library, installed or unpacked; `instead` are other names of its kit."""
    from benchmarks.lib.reach_tile import use_kit

    for needed in ("torch", module):
        if not _is_installed(needed) and not (needed == module and any(map(use_kit, (name, *instead)))):
            raise NotHere(f"{needed} is not installed")
    return importlib.import_module(f"benchmarks.lib.reach_{name}")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def _every_warp(trace: Any, profile: Any) -> Row:
    """`described`, where each launch must have all warps of its grid."""
    launches = trace.meta.launches
    warps = {one.kernel: math.prod(one.grid) * -(-math.prod(one.block) // 32) for one in launches}
    return described(trace, profile, warps)


@case("tilelang", "TileLang")
def tilelang(out: Path) -> Row:
    return dict(_packed("tilelang", "tilelang").run(_every_warp, RECORDED, TIMES))


@case("cutile", "cuTile")
def cutile(out: Path) -> Row:
    return dict(_packed("cutile", "cuda.tile", "cutile_recorded").run(_every_warp, RECORDED, TIMES))


def run_case(name: str, out: Path) -> Row:
    """One case, in a process of its own."""
    what, _ = CASES[name]
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.reach", "case", name, "--out", str(folder)]
    limit = SLOW_CASES.get(name, LIMIT_S)
    said = folder / "stderr.txt"
    try:
        with said.open("w") as errors:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"case": name, "what": what, "problem": f"it did not end within {limit} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"case": name, "what": what, "problem": (said.read_text().strip().splitlines() or ["no output"])[-1]}
    return {"case": name, "what": what, **json.loads(lines[-1])}
