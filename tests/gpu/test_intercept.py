"""Kernels of other libraries under automatic marks on a real GPU: same bits, full account, nothing left behind."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warplens as wl
from warplens.trace.model import Trace

cupy = pytest.importorskip("cupy")
if not cupy.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

COVERED = 0.9
"""Of each warp's life, what its regions account for under `all`."""
N = 512
SOURCE = r"""
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float ta[16][17], tb[16][17];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        ta[y][x] = a[row * n + k + x];
        tb[y][x] = b[(k + y) * n + col];
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += ta[y][i] * tb[i][x];
        __syncthreads();
    }
    c[row * n + col] = sum;
}
"""
GRID, BLOCK = (N // 16, N // 16), (16, 16)


@pytest.fixture
def arrays() -> tuple[Any, Any, Any]:
    a, b = (cupy.asarray(np.random.default_rng(seed).random((N, N), np.float32)) for seed in (1, 2))
    return a, b, cupy.zeros_like(a)


def check(name: str, launch: Callable[[], np.ndarray], kernel: str, auto: str = "all") -> Trace:
    """Off, on, off, on: always the same bits, and the plain kernel whenever no profile runs."""
    plain = launch()
    traces = []
    for _ in range(2):
        with wl.profile(auto=auto, records_per_warp=4096) as prof:
            result = launch()
        np.testing.assert_array_equal(result, plain)
        assert kernel in prof.trace.kernels, prof.notes
        assert not prof.trace.meta.losses.mismatched_ends
        assert not prof.trace.meta.losses.orphan_ends
        np.testing.assert_array_equal(launch(), plain)
        traces.append(prof.trace)
    assert traces[0].regions == traces[1].regions
    shares = [info.covered for trace in traces for info in trace.meta.launches if info.kernel == kernel]
    report(name, {"covered": shares, "regions": sorted(traces[1].regions), "notes": prof.notes})
    assert min(share["least"] for share in shares) >= COVERED, (name, shares)
    return traces[1]


def report(name: str, what: dict[str, Any]) -> None:
    folder = os.environ.get("WARPLENS_RESULTS")
    if folder:
        with open(Path(folder) / "intercept.jsonl", "a") as out:
            out.write(json.dumps({"name": name, **what}) + "\n")


def test_cupy_raw_kernel_compiled_before_the_profile(arrays: tuple[Any, Any, Any]) -> None:
    a, b, c = arrays
    kernel = cupy.RawKernel(SOURCE, "matmul")

    def launch() -> np.ndarray:
        c[...] = 0
        kernel(GRID, BLOCK, (a, b, c, np.int32(N)))
        return cupy.asnumpy(c)

    trace = check("cupy.RawKernel", launch, "matmul")
    assert {"load matmul.cu:7", "barrier matmul.cu:9", "loop matmul.cu:6", "store matmul.cu:13"} <= set(trace.regions)
    assert type(kernel.kernel).__name__ == "Function"


def test_cupy_raw_module_with_templates_a_constant_and_streams(arrays: tuple[Any, Any, Any]) -> None:
    a, _, c = arrays
    source = (
        "__constant__ float scale;\ntemplate <typename T> __global__ void scaled(const T* a, T* c) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  for (int k = 0; k < 64; k++) c[i] += scale * a[i];\n}\n"
    )
    module = cupy.RawModule(code=source, name_expressions=("scaled<float>",))
    cupy.ndarray(1, np.float32, module.get_global("scale"))[...] = 3
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]

    def launch() -> np.ndarray:
        c[...] = 0
        cupy.cuda.Device().synchronize()
        kernel = module.get_function("scaled<float>")
        for part, stream in enumerate(streams):
            with stream:
                kernel((N // 2,), (256,), (a[part * 128 :], c[part * 128 :]))
        cupy.cuda.Device().synchronize()
        return cupy.asnumpy(c)

    with wl.profile(auto="all", records_per_warp=4096) as prof:
        launch()
    assert prof.trace.meta.launches, prof.notes
    check("cupy.RawModule", launch, "scaled")


def test_cuda_core(arrays: tuple[Any, Any, Any]) -> None:
    core = pytest.importorskip("cuda.core")
    a, b, c = arrays
    device = core.Device()
    device.set_current()
    stream = device.create_stream()
    arch = f"sm_{device.arch}"

    def launch() -> np.ndarray:
        c[...] = 0
        cupy.cuda.Device().synchronize()
        options = core.ProgramOptions(std="c++17", arch=arch)
        kernel = core.Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("matmul")
        config = core.LaunchConfig(grid=(*GRID, 1), block=(*BLOCK, 1))
        core.launch(stream, config, kernel, a.data.ptr, b.data.ptr, c.data.ptr, np.int32(N))
        stream.sync()
        return cupy.asnumpy(c)

    before = core.launch, core.Program
    check("cuda.core", launch, "matmul")
    assert (core.launch, core.Program) == before


def test_cuda_bindings(arrays: tuple[Any, Any, Any]) -> None:
    drv = pytest.importorskip("cuda.bindings.driver")
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    a, b, c = arrays
    arch = f"--gpu-architecture=sm_{cupy.cuda.Device().compute_capability}".encode()

    def build() -> bytes:
        program = nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"bound.cu", 0, [], [])[1]
        nvrtc.nvrtcCompileProgram(program, 1, [arch])
        cubin = b" " * nvrtc.nvrtcGetCUBINSize(program)[1]
        nvrtc.nvrtcGetCUBIN(program, cubin)
        return cubin

    def launch() -> np.ndarray:
        c[...] = 0
        cupy.cuda.Device().synchronize()
        module = drv.cuModuleLoadData(build())[1]
        function = drv.cuModuleGetFunction(module, b"matmul")[1]
        values = ((a.data.ptr, b.data.ptr, c.data.ptr, N), (ctypes.c_void_p,) * 3 + (ctypes.c_int,))
        (status,) = drv.cuLaunchKernel(function, *GRID, 1, *BLOCK, 1, 0, 0, values, 0)
        assert not int(status)
        addresses = [np.array([value], np.uint64) for value in values[0][:3]] + [np.array([N], np.int32)]
        table = np.array([cell.ctypes.data for cell in addresses], np.uint64)
        (status,) = drv.cuLaunchKernel(function, *GRID, 1, *BLOCK, 1, 0, 0, table.ctypes.data, 0)
        assert not int(status)
        drv.cuCtxSynchronize()
        return cupy.asnumpy(c)

    before = drv.cuLaunchKernel, nvrtc.nvrtcCompileProgram
    trace = check("cuda.bindings", launch, "matmul")
    assert "load bound.cu:7" in trace.regions
    assert (drv.cuLaunchKernel, nvrtc.nvrtcCompileProgram) == before


def test_numba_cuda(arrays: tuple[Any, Any, Any]) -> None:
    if not hasattr(np, "row_stack"):
        np.row_stack = np.vstack  # gone from the newest numpy, and older numba asks for it
    cuda = pytest.importorskip("numba.cuda")
    from numba import float32

    @cuda.jit
    def tiled(a, b, c):
        sa, sb = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
        x, y = cuda.grid(2)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        total = float32(0.0)
        for i in range(a.shape[1] // 16):
            sa[ty, tx] = a[y, tx + i * 16]
            sb[ty, tx] = b[ty + i * 16, x]
            cuda.syncthreads()
            for j in range(16):
                total += sa[ty, j] * sb[j, tx]
            cuda.syncthreads()
        c[y, x] = total

    a, b, c = arrays

    def launch() -> np.ndarray:
        c[...] = 0
        tiled[GRID, BLOCK](a, b, c)
        cuda.synchronize()
        return cupy.asnumpy(c)

    check("numba-cuda", launch, "tiled")


def test_what_has_no_ptx_is_named_with_the_reason(arrays: tuple[Any, Any, Any], tmp_path: Path) -> None:
    a, b, c = arrays
    kernel = cupy.RawKernel(SOURCE, "matmul")
    from cupy.cuda import compiler

    cubin = compiler.compile_using_nvrtc(SOURCE)[0]
    (tmp_path / "matmul.cubin").write_bytes(cubin)
    module = cupy.RawModule(path=str(tmp_path / "matmul.cubin"))
    with wl.profile(auto="loads") as prof:
        kernel(GRID, BLOCK, (a, b, c, np.int32(N)))
        module.get_function("matmul")(GRID, BLOCK, (a, b, c, np.int32(N)))
    assert any("machine code without PTX" in text for text in prof.notes["matmul"])
    assert len(prof.trace.meta.launches) == 1


def test_cupys_caches_hold_nothing_woven(arrays: tuple[Any, Any, Any], tmp_path: Path) -> None:
    from cupy.cuda import compiler

    a, b, c = arrays
    backend = compiler._kernel_cache_backend
    with wl.profile(auto="all"):
        cupy.RawKernel(SOURCE + "// fresh", "matmul")(GRID, BLOCK, (a, b, c, np.int32(N)))
    assert compiler._kernel_cache_backend is backend
    folder = Path(os.environ.get("CUPY_CACHE_DIR", Path.home() / ".cupy/kernel_cache"))
    assert not [path for path in folder.glob("*.cubin") if b"wl_buffer" in path.read_bytes()]
