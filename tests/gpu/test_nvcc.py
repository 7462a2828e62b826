"""Programs compiled by `warplens nvcc` on a real GPU: `python -m pytest tests/gpu/test_nvcc.py -q`."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warplens as wl
import warplens.cuda as wlcu
from tests.support.cuda_gpu import NEEDS_GPU, SAXPY, Ints, in_parallel
from tests.support.paths import SHIM
from tests.support.shim_records import SLOTS_PER_STEP, step, tracks
from warplens.decode import decode
from warplens.driver.kernel_arguments import pack
from warplens.driver.libcuda import driver
from warplens.errors import WarplensError
from warplens.frontends.cuda.module import find_kernel, kernel_names
from warplens.launch.direct import DeviceBuffer
from warplens.record.capture import Capture, Launch, read_capture
from warplens.record.launch_buffer import BUFFER_BYTES, SPARE, plan
from warplens.record.layout import HEADER_BYTES, SLOT_BYTES, TrackState

HERE = Path(__file__).resolve().parent
MATMUL = HERE.parents[1] / "examples" / "cuda" / "matmul.cu"


pytestmark = [*NEEDS_GPU, pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")]
OURS = [sys.executable, "-m", "warplens", "nvcc"]


def arch() -> str:
    return "sm_" + driver().device().capability.replace(".", "")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Programs and cubins, woven unless their names say otherwise."""
    folder = tmp_path_factory.mktemp("nvcc")
    common = ["-std=c++17", "-O2", f"-arch={arch()}", "-DONE_LEADER"]
    program, kernels = str(HERE / "program.cu"), str(SHIM / "kernels.cu")
    direct = ["nvcc", f"-I{wlcu.include_dir()}"]
    builds: dict[str, list[str]] = {
        "program": [*OURS, *common, program],
        "program ring": [*OURS, *common, program, "-DWARPLENS_RING=1"],
        "program any": [*OURS, "--any-block", *common, program],
        "stop": [*OURS, *common, "-cubin", kernels],
        "ring": [*OURS, *common, "-cubin", kernels, "-DWARPLENS_RING=1"],
        "any": [*OURS, "--any-block", *common, "-cubin", kernels],
        "matmul": [*OURS, *common, "-cubin", str(MATMUL)],
        "matmul off": [*direct, *common, "-cubin", str(MATMUL), "-DWARPLENS=0"],
    }
    for name, done in zip(builds, in_parallel([[*b, "-o", folder / n] for n, b in builds.items()]), strict=True):
        assert (done.returncode, done.stderr) == (0, ""), name
    return {name: folder / name for name in builds}


class Loaded:
    """A cubin, launched with buffers of warplens.cuda."""

    def __init__(self, path: Path) -> None:
        cubin = path.read_bytes()
        self.names, self.handle = kernel_names(cubin), driver().load(cubin)

    def launch(self, kernel: str, grid: Any, block: Any, *arguments: Any) -> None:
        function = driver().function(self.handle, find_kernel(kernel, self.names) or "")
        assert function is not None
        driver().launch(function, grid, block, pack(kernel, arguments, driver().parameter_sizes(function)), 0, 0)

    def record(self, kernel: str, grid: Any, block: Any, *arguments: Any, records: int = 200) -> Launch:
        sizes = plan(grid, block, records=records, spare=SPARE)
        lent = DeviceBuffer(driver(), kernel, grid, block, sizes, full="stop", stream=0, names=None)
        self.launch(kernel, grid, block, *arguments, np.uint64(lent.address))
        driver().synchronize()
        whole = np.frombuffer(driver().download(lent.address + BUFFER_BYTES, sizes.tracks * sizes.stride), np.uint8)
        beyond = whole.reshape(sizes.tracks, sizes.stride)[:, HEADER_BYTES + (records + SPARE) * SLOT_BYTES :]
        assert not beyond.any(), "a store past the track's spare slots"
        return lent.collect()


@pytest.mark.parametrize("records", [0, 1, 32, 33, 34, 200])
@pytest.mark.parametrize("build", ["stop", "ring", "any"])
def test_nested_regions_at_every_capacity(built: dict[str, Path], build: str, records: int) -> None:
    everything = [line for i in range(3) for line in step(i)]
    launch = Loaded(built[build]).record("nested", (2, 2, 1), (16, 2, 2), Ints(512), 3, records=records)
    assert launch.full == ("ring" if build == "ring" else "stop")
    assert launch.extra["store"] == {"stop": "spread", "ring": "mixed", "any": "defer"}[build]
    assert {"step", "inner", "manual", "tick", "index", "half"} <= set(launch.regions.values())
    for head, lines in tracks(launch):
        assert (head["written"], head["state"], head["lane"]) == (3 * SLOTS_PER_STEP, TrackState.EXITED, 0)
        assert head["exit_ns"] >= head["start_ns"] > 1_600_000_000_000_000_000
        if build == "ring":
            assert lines == everything[len(everything) - len(lines) :]
        else:
            assert lines[:-1] == everything[: max(0, len(lines) - 1)]
        if records >= 33 and (build != "ring" or records > 64):
            assert lines == everything
    if records:
        losses = decode(Capture([launch], device=driver().device())).meta.losses
        assert losses.records_lost == (0 if lines == everything else 8 * (33 - launch.capacity))


def test_results_are_bit_identical(built: dict[str, Path]) -> None:
    n, rng = 128, np.random.default_rng(3)
    inputs = [rng.standard_normal(n * n, np.float32).view(np.int32) for _ in range(2)]
    results = []
    for name in ("matmul off", "matmul"):
        a, b, c = Ints(n * n), Ints(n * n), Ints(n * n)
        for memory, data in zip((a, b), inputs, strict=True):
            driver().upload(memory.address, data.tobytes(), 0)
        loaded = Loaded(built[name])
        loaded.launch("matmul", (4, 4, 1), (32, 32, 1), a, b, c, n, np.uint64(0))
        results.append(c.read())
        if name == "matmul":
            launch = loaded.record("matmul", (4, 4, 1), (32, 32, 1), a, b, c, n)
            results.append(c.read())
            trace = decode(Capture([launch], device=driver().device()))
            assert launch.extra["store"] == "spread"
            assert trace.meta.losses.clean
            rows = trace.spans.to_pylist()
            assert len(rows) == 16 * 32 * (3 * 4 + 1)
            assert all(row["depth"] == 0 and row["dur_cycles"] >= 0 for row in rows)
    assert results[0] == results[1] == results[2]


def test_what_cannot_be_recorded_is_refused_by_both_hosts(built: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(WarplensError, match="--any-block"):
        Loaded(built["stop"]).record("nested", (2, 1, 1), (40, 1, 1), Ints(512), 3)
    assert len(tracks(Loaded(built["any"]).record("nested", (2, 1, 1), (40, 1, 1), Ints(512), 3))) == 4
    run = [built["program"], "partial", "200", tmp_path / "x.wlcap"]
    done = subprocess.run(run, capture_output=True, text=True)
    assert (done.returncode, "warplens nvcc --any-block" in done.stderr) == (1, True), done.stderr
    run[0] = built["program any"]
    assert subprocess.run(run, capture_output=True, text=True).stdout == "lost 0\n"


@pytest.mark.parametrize("name", ["program", "program any"])
def test_a_program_without_python(built: dict[str, Path], name: str, tmp_path: Path) -> None:
    out = tmp_path / "all.wlcap"
    done = subprocess.run([built[name], "all", "200", out], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "lost 0\n"), done.stderr
    capture = read_capture(out)
    assert [launch.kernel for launch in capture.launches] == ["nested", "early", "diverge", "linked", "async_copy"]
    nested, early, diverge, linked, _ = (tracks(launch) for launch in capture.launches)
    assert all(lines == [line for i in range(3) for line in step(i)] for _, lines in nested)
    opened, closed = ["begin outer", "begin open", "end outer"], ["begin outer", "begin open", "end open", "end outer"]
    assert [lines for _, lines in early] == [opened, closed, opened, closed]
    assert all(
        lines == ["begin both", "begin lane 0", "end lane 0", "end both", "instant after"] for _, lines in diverge
    )
    assert all(lines == ["instant before", "begin apart", "end apart", "instant after"] for _, lines in linked)
    events = json.loads(Path(f"{out}.json").read_text())["traceEvents"]
    assert {"step", "lane 0", "copy"} <= {event["name"] for event in events}
    done = subprocess.run([built[name], "nested", "32", out], capture_output=True, text=True)
    assert done.stdout == "lost 8\n", "one slot of each of eight tracks"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="needs compute-sanitizer")
def test_compute_sanitizer_finds_nothing(built: dict[str, Path], tmp_path: Path) -> None:
    commands: dict[str, Sequence[str | Path]] = {}
    for name in ("program", "program ring", "program any"):
        for tool in ("memcheck", "racecheck", "initcheck"):
            out = tmp_path / f"{name}-{tool}.wlcap"
            commands[f"{tool} {name}"] = ["--tool", tool, built[name], "all", "0,32,33,200", out]
    results = in_parallel([["compute-sanitizer", "--error-exitcode", "9", *c] for c in commands.values()])
    for name, done in zip(commands, results, strict=True):
        assert done.returncode == 0, f"{name}: {done.stdout[-3000:]}{done.stderr[-1000:]}"
        assert "ERROR SUMMARY: 0 errors" in done.stdout or "RACECHECK SUMMARY: 0 hazards" in done.stdout, name


EXTENSION = """
#include <torch/extension.h>
void run_saxpy(torch::Tensor x, torch::Tensor y, double a, int64_t prof) {
  saxpy<<<8, 128>>>(a, x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), wl::Buffer{(unsigned long long)prof});
}"""


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or shutil.which("ninja") is None, reason="needs torch and ninja"
)
def test_torch_load_inline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch.utils.cpp_extension import load_inline

    monkeypatch.setenv("PYTORCH_NVCC", " ".join(OURS))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "{}.{}".format(*torch.cuda.get_device_capability()))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    extension = load_inline(
        "wl_woven", cpp_sources="void run_saxpy(torch::Tensor x, torch::Tensor y, double a, int64_t prof);",
        cuda_sources=SAXPY + EXTENSION, functions=["run_saxpy"], extra_cuda_cflags=["-std=c++17"],
        build_directory=str(tmp_path),
    )  # fmt: skip
    x, y = torch.arange(1000, dtype=torch.float32, device="cuda"), torch.ones(1000, device="cuda")
    with wl.profile() as prof:
        extension.run_saxpy(x, y, 2.0, int(wlcu.buffer(8, 128, kernel="saxpy")))
    assert y[10].item() == 21.0
    assert set(prof.trace.regions) == {"saxpy", "load"}
    assert prof.trace.meta.launches[0].extra["store"] in ("spread", "mixed", "defer")


def test_many_programs_at_once_do_not_meet(tmp_path: Path) -> None:
    def build(number: int) -> tuple[int, bytes]:
        out = tmp_path / f"{number}.cubin"
        command = [*OURS, "-std=c++17", f"-arch={arch()}", "-cubin", str(MATMUL), "-o", str(out)]
        return subprocess.run(command).returncode, out.read_bytes()

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(build, range(4)))
    assert {status for status, _ in made} == {0}
    assert len({len(cubin) for _, cubin in made}) == 1
