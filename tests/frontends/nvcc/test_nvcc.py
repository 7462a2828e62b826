"""`warplens nvcc`: woven marks in programs that nvcc compiles, recorded into the buffers of its hosts."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cuda_compilers import names_sent
from tests.support.paths import ROOT, SHIM
from tests.support.shim_records import SLOTS_PER_STEP, step, tracks
from warplens import simulate
from warplens.commands import main
from warplens.decode import decode
from warplens.errors import WarplensError
from warplens.frontends.nvcc.assembler import Cubin, NvccPtxas
from warplens.frontends.nvcc.dependencies import rule_arguments
from warplens.frontends.nvcc.dryrun import find_nvcc
from warplens.ptx.tree import Declaration, parse
from warplens.record.c_header import PATH
from warplens.record.capture import Capture, Launch, read_capture
from warplens.record.launch_buffer import BUFFER, BUFFER_BYTES, FULL_MODES, REFUSALS, SPARE, STORES, plan
from warplens.record.layout import HEADER_BYTES, SLOT_BYTES, TRACK_MAGIC, TrackState
from warplens.record.name_table import NAMES_BYTES, scan
from warplens.weave.fit.resources import UNUSABLE, Resources

MATMUL = ROOT / "examples" / "cuda" / "matmul.cu"
KERNELS = "#define ONE_LEADER\n" + (SHIM / "kernels.cu").read_text()
"""The kernels whose leader is lane 0: a source with another one is not woven."""

NVCCS = [n for n in (shutil.which("nvcc"), *os.environ.get("WARPLENS_NVCC", "").split(os.pathsep)) if n]
needs_nvcc = pytest.mark.skipif(not NVCCS, reason="needs nvcc")
each_nvcc = pytest.mark.parametrize("nvcc", NVCCS)


@functools.cache
def woven(source: str, *options: str, nvcc: str = NVCCS[0] if NVCCS else "") -> str:
    """The PTX that `warplens nvcc` makes of a source."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "k.cu", Path(folder) / "k.ptx"
        path.write_text(source)
        own = [option for option in options if option.startswith("--")]
        rest = [option for option in options if not option.startswith("--")]
        arguments = ["-std=c++17", "-arch=sm_90", "-ptx", str(path), "-o", str(out), *rest]
        assert main(["nvcc", "--nvcc", nvcc, *own, *arguments]) == 0
        return out.read_text()


class Recorded:
    """A launch in the interpreter, with a buffer as the hosts make it."""

    def __init__(
        self, text: str, kernel: str, grid: Any, block: Any, *arguments: Any,
        records: int = 200, spare: int = SPARE, tracks: int | None = None, names: bool = False, off: bool = False,
    ) -> None:  # fmt: skip
        self.memory = simulate.GlobalMemory(8 << 20)
        module = parse(text)
        entry = next(e.name for e in module.entries if kernel in e.name)
        self.out = self.memory.alloc(4 * 1024)
        sizes = plan(grid, block, records=records, spare=spare)
        sizes = sizes if tracks is None else type(sizes)(sizes.capacity, sizes.stride, tracks, sizes.per_block)
        self.base = base = self.memory.alloc(sizes.size)
        self.stride = sizes.stride
        self.names_at = self.memory.alloc(NAMES_BYTES)
        self.memory.write(base, np.frombuffer(sizes.header(self.names_at if names else 0), np.uint8))
        given = [self.out if argument is OUT else argument for argument in arguments]
        simulate.run(module, entry, grid, block, [*given, 0 if off else base], memory=self.memory)
        self.head = self.memory.read(base, np.uint8, BUFFER_BYTES).view(BUFFER)[0]
        raw = self.memory.read(base + BUFFER_BYTES, np.uint8, sizes.tracks * sizes.stride)
        rows = raw.reshape(sizes.tracks, sizes.stride)
        self.begun = int((rows[:, :4].copy().view(np.uint32) == TRACK_MAGIC).sum())
        assert not rows[:, HEADER_BYTES + (records + spare) * SLOT_BYTES :].any(), "a store past the spare slots"
        regions = dict(scan(b"".join(_constants(text))).regions)
        mode = FULL_MODES[int(self.head["mode"])] or "stop"
        capacity = records if mode == "stop" else 1 << records.bit_length() - 1 if records else 0
        self.launch = Launch(
            kernel=kernel, grid=grid, block=block, regions=regions, capacity=capacity, stride=sizes.stride, raw=raw,
            full=mode,
        )  # fmt: skip

    @property
    def store(self) -> str:
        return STORES[int(self.head["store"])]

    @property
    def refused(self) -> str:
        return REFUSALS[int(self.head["refused"])]

    def result(self, count: int) -> list[int]:
        return [int(value) for value in self.memory.read(self.out, np.int32, count)]


OUT = object()


def _constants(text: str) -> list[bytes]:
    found = [item for item in parse(text).items if isinstance(item, Declaration) and item.space == "const"]
    return [
        bytes(int(n) for n in re.findall(r"\d+", variable.initialiser or "")).ljust(item.size(variable), b"\0")
        for item in found
        for variable in item.variables
    ]


@needs_nvcc
@each_nvcc
@pytest.mark.parametrize("options", [(), ("--any-block",)])
@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("records", [0, 1, 2, 31, 32, 33, 34, 200])
def test_any_capacity_keeps_what_fits_and_counts_the_rest(
    nvcc: str, options: tuple[str, ...], ring: bool, records: int
) -> None:
    text = woven(KERNELS, *options, *["-DWARPLENS_RING=1"] * ring, nvcc=nvcc)
    everything = [line for i in range(3) for line in step(i)]
    done = Recorded(text, "nested", (2, 2, 1), (16, 2, 2), OUT, 3, records=records)
    assert done.store == ("mixed" if ring else "defer" if options else "spread")
    assert (done.refused, done.launch.full) == ("", "ring" if ring else "stop")
    assert done.result(16) == [3] * 16
    found = tracks(done.launch)
    assert [(int(h["block"]), int(h["warp"])) for h, _ in found] == [(b, w) for b in range(4) for w in range(2)]
    for head, lines in found:
        assert (head["written"], head["state"], head["lane"]) == (3 * SLOTS_PER_STEP, TrackState.EXITED, 0)
        assert head["start_clock"] < head["exit_clock"]
        if ring:
            assert lines == everything[len(everything) - len(lines) :]
        elif lines:  # where a payload is cut off from its record, its slot comes last
            assert lines[:-1] == everything[: len(lines) - 1]
        if records >= 3 * SLOTS_PER_STEP and (not ring or records >= 64):
            assert lines == everything
    if records:
        trace = decode(Capture([done.launch]))
        lost = 0 if lines == everything else 8 * (3 * SLOTS_PER_STEP - done.launch.capacity)
        assert trace.meta.losses.records_lost == lost


@needs_nvcc
@settings(max_examples=25, deadline=None)
@given(records=st.integers(0, 90), steps=st.integers(0, 8), spread=st.booleans(), block=st.sampled_from([32, 64, 96]))
def test_the_first_records_are_kept_and_all_are_counted(records: int, steps: int, spread: bool, block: int) -> None:
    done = Recorded(woven(KERNELS, *[] if spread else ["--any-block"]), "nested", (2, 1, 1), (block, 1, 1), OUT, steps,
                    records=records)  # fmt: skip
    everything = [line for i in range(steps) for line in step(i)]
    for head, lines in tracks(done.launch):
        assert head["written"] == steps * SLOTS_PER_STEP
        assert lines[:-1] == everything[: max(0, len(lines) - 1)]
        if records >= steps * SLOTS_PER_STEP:
            assert lines == everything


@needs_nvcc
@each_nvcc
def test_lanes_that_leave_split_or_call_are_recorded_as_ever(nvcc: str) -> None:
    text = woven(KERNELS, nvcc=nvcc)
    early = Recorded(text, "early", (2, 1, 1), (64, 1, 1), OUT)
    opened, closed = ["begin outer", "begin open", "end outer"], ["begin outer", "begin open", "end open", "end outer"]
    assert [lines for _, lines in tracks(early.launch)] == [opened, closed, opened, closed]
    assert early.result(34)[::32] == [2, 3]
    diverge = Recorded(text, "diverge", (2, 1, 1), (40, 1, 1), OUT)
    assert diverge.store != "spread"
    for _, lines in tracks(diverge.launch):
        assert lines == ["begin both", "begin lane 0", "end lane 0", "end both", "instant after"]
    linked = Recorded(text, "linked", (2, 1, 1), (64, 1, 1), OUT)
    assert linked.result(4) == [0, 3, 6, 9]
    for _, lines in tracks(linked.launch):
        assert lines == ["instant before", "begin apart", "end apart", "instant after"]
    copies = Recorded(text, "async_copy", (2, 1, 1), (64, 1, 1))
    for _, lines in tracks(copies.launch):
        assert lines[:4] == ["async_begin copy", "async_begin copy #1", "async_begin copy #2", "anchor 0"]
        assert len(lines) == 3 + 1 + 3 + 65 + 2


REFUSING = r"""
#define WARPLENS_SHIM 1
#include "cuda_shim.h"
#include <warplens_host.h>
#include <cstdlib>
#include <iostream>
int main(int, char** argv) try {
  wl::Capture capture;
  const wl::Buffer prof = capture.launch("gemm", 2, 40, {16});
  *reinterpret_cast<unsigned*>(prof.address + WL_BUFFER_REFUSED_AT) = std::atoi(argv[1]);
  *reinterpret_cast<unsigned*>(prof.address + WL_BUFFER_BYTES) = WL_TRACK_MAGIC;
  capture.write(argv[2]);
} catch (const std::exception& error) { std::cout << error.what(); return 1; }
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_host_without_python_says_what_kept_a_kernel_from_recording(tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(REFUSING)
    strict = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{SHIM}", f"-I{PATH.parent}"]
    subprocess.run(["g++", *strict, tmp_path / "main.cpp", "-o", tmp_path / "main"], check=True)
    for reason, said in zip(
        REFUSALS,
        ("", "more warps than its buffer has tracks", "warplens nvcc --any-block", "is too small"),
        strict=True,
    ):
        path = tmp_path / f"{reason or 'fine'}.wlcap"
        done = subprocess.run([tmp_path / "main", str(REFUSALS.index(reason)), path], capture_output=True, text=True)
        assert (done.returncode, said in done.stdout) == (bool(said), True)
        assert len(read_capture(path).launches) == 1, "what was recorded is not lost"
        assert done.stdout.startswith("warplens: gemm: " if said else "")


@needs_nvcc
def test_what_cannot_be_recorded_is_refused_by_its_reason_and_the_kernel_still_right() -> None:
    text = woven(KERNELS)
    plain = Recorded(text, "nested", (2, 1, 1), (64, 1, 1), OUT, 3, off=True)
    assert (plain.begun, int(plain.head["mode"]), plain.result(4)) == (0, 0, [3] * 4)
    for change, reason, begun in (
        ({"block": (40, 1, 1)}, "block", 0),
        ({"block": (16, 3, 1)}, "block", 0),
        ({"spare": 1}, "room", 0),
        ({"tracks": 3}, "tracks", 3),
    ):
        options = {"block": (64, 1, 1), **change}
        done = Recorded(text, "nested", (2, 1, 1), options.pop("block"), OUT, 3, **options)
        assert (done.refused, done.begun, done.result(4)) == (reason, begun, [3] * 4), change
    for block in ((40, 1, 1), (16, 3, 1)):
        done = Recorded(woven(KERNELS, "--any-block"), "nested", (2, 1, 1), block, OUT, 3)
        assert (done.refused, done.begun) == ("", 4)


MANY = """
#include <warplens.cuh>
__global__ void many(int* out, int n, wl::Buffer prof) {
  wl::Kernel k(prof);
  int v = 0;
  for (int i = 0; i < n; ++i) {
#pragma unroll
    for (int j = 0; j < 29; ++j) { WL_INSTANT("many"); v = v * i + j; }
  }
  out[threadIdx.x] = v;
}
"""


@needs_nvcc
@pytest.mark.parametrize("options", [(), ("--any-block",), ("-DWARPLENS_RING=1",)])
def test_full_tracks_may_end_at_a_four_gib_line(options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    text, line = woven(MANY, *options), 8 << 32
    users = [module for name, module in sys.modules.items() if name.startswith("warplens.simulate")]
    first, stride = 0, 0
    for below in range(3):
        for module in users:
            if hasattr(module, "GLOBAL_BASE"):
                monkeypatch.setattr(module, "GLOBAL_BASE", line - first - below * stride)
        done = Recorded(text, "many", (1, 1, 1), (64, 1, 1), OUT, 9, records=8)
        assert not first or done.base + BUFFER_BYTES + below * stride == line
        first, stride = first or done.base + BUFFER_BYTES - line, done.stride
        assert (done.refused, done.begun) == ("", 2)
        assert [(int(head["written"]), lines) for head, lines in tracks(done.launch)] == [
            (261, ["instant many"] * 8)
        ] * 2


SPECIALISED = """
#include <warplens.cuh>
__global__ void work(int* out, int n, wl::Buffer prof) {
  wl::Kernel k(prof);
  if (threadIdx.x / 32 == 1) {
    WL_REGION("one");
    out[threadIdx.x] = n;
  } else {
    WL_REGION("other");
    out[threadIdx.x] = 1;
  }
}
"""


@needs_nvcc
def test_warps_told_apart_by_x_need_whole_rows_of_them() -> None:
    text = woven(SPECIALISED)
    assert Recorded(text, "work", (1, 1, 1), (64, 1, 1), OUT, 7).store == "spread"
    done = Recorded(text, "work", (1, 1, 1), (16, 4, 1), OUT, 7)
    assert (done.refused, done.begun) == ("block", 0)
    by_row = woven(SPECIALISED.replace("threadIdx.x / 32 == 1", "threadIdx.y == 1"))
    assert Recorded(by_row, "work", (1, 1, 1), (32, 2, 1), OUT, 7).store != "spread"


UNROLLED = """
#include <warplens.cuh>
struct Parameters { int* out; wl::Buffer prof; int n; };
__global__ void work(Parameters p) {
  wl::Kernel k(p.prof);
  int v = p.n;
#pragma unroll
  for (int i = 0; i < 50; ++i) { WL_REGION("a"); v = v * v + i; }
  p.out[threadIdx.x] = v;
}
"""


@needs_nvcc
@pytest.mark.parametrize("options", [(), ("--any-block",)])
def test_a_buffer_inside_a_parameter_and_more_marks_in_a_row_than_lanes(options: tuple[str, ...]) -> None:
    text = woven(UNROLLED, *options)
    memory = simulate.GlobalMemory(1 << 20)
    sizes = plan((1, 1, 1), (32, 1, 1), records=95, spare=SPARE)
    out, base = memory.alloc(4096), memory.alloc(sizes.size)
    memory.write(base, np.frombuffer(sizes.header(), np.uint8))
    given = np.zeros(1, np.dtype({"names": ["o", "b", "n"], "formats": ["<u8", "<u8", "<i4"], "itemsize": 24}))
    given["o"], given["b"], given["n"] = out, base, 3
    simulate.run(text, parse(text).entries[0].name, (1, 1, 1), (32, 1, 1), [given.tobytes()], memory=memory)
    raw = memory.read(base + BUFFER_BYTES, np.uint8, sizes.stride)
    ((head, lines),) = tracks(
        Launch("k", (1, 1, 1), (32, 1, 1), {}, sizes.capacity, raw=raw, stride=sizes.stride)
    )  # fmt: skip
    assert head["written"] == 100
    assert [line.split()[0] for line in lines] == (["begin", "end"] * 50)[:95]


@needs_nvcc
def test_the_first_track_sends_the_names() -> None:
    text = woven(KERNELS)
    # A GPU's constants are one piece from 0 on; the interpreter's lie apart, anywhere.
    data = b"".join(item for item in _constants(text) if len(item) < 1024)
    piece = f".const .align 8 .b8 all[{len(data)}] = {{{', '.join(map(str, data))}}};"
    text = re.sub(r"^\.const .*?$", "", text, flags=re.M)
    text = re.sub(r"mov\.u64 %wl_h, \S+;", f"mov.u64 %wl_h, all; add.s64 %wl_h, %wl_h, {len(data)};", text)
    text = text.replace("mov.b64 %wl_a, 0;", "mov.u64 %wl_a, all;").replace(
        ".address_size 64", f".address_size 64\n{piece}"
    )
    done = Recorded(text, "early", (2, 1, 1), (64, 1, 1), OUT, names=True)
    assert int(done.head["names_size"])
    assert bytes(done.memory.read(done.names_at, np.uint8, len(data))) == data
    assert {"outer", "open"} <= set(scan(data).regions.values())
    assert not Recorded(text, "early", (2, 1, 1), (64, 1, 1), OUT).head["names_size"]


@needs_nvcc
@each_nvcc
def test_names_lie_in_the_machine_code_as_with_direct_marks(nvcc: str, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(KERNELS)
    cubin = tmp_path / "k.cubin"
    assert (
        main(["nvcc", "--nvcc", nvcc, "-std=c++17", "-arch=sm_90", "-cubin", str(tmp_path / "k.cu"), "-o", str(cubin)])
        == 0
    )
    assert {"step", "lane 0", "apart"} <= set(names_sent(cubin.read_bytes()).values())


def run(
    *arguments: str | Path, cwd: Path, nvcc: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "warplens", "nvcc", *(["--nvcc", nvcc] if nvcc else []), *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(cwd), **environment}
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "a folder"
    folder.mkdir()
    shutil.copy(MATMUL, folder / "mat mul.cu")
    (folder / "plain.cu").write_text("__global__ void k(int* x) { *x = 1; }\n")
    (folder / "lane.cu").write_text(SPECIALISED.replace("k(prof)", "k(prof, wl::lane(3))"))
    return folder


COMPILE = ("-std=c++17", "-arch=sm_90")


@needs_nvcc
@each_nvcc
@pytest.mark.parametrize(
    "options",
    [
        ("-c",),
        ("-ptx",),
        ("-fatbin", "--threads", "2", "-gencode", "arch=compute_80,code=[sm_80,sm_86,compute_80]",
         "-gencode=arch=compute_90,code=sm_90"),
        ("-c", "-lineinfo", "-keep", "--keep-dir", "kept"),
    ],
)  # fmt: skip
def test_nvcc_makes_what_it_would_make_and_leaves_nothing_behind(
    nvcc: str, options: tuple[str, ...], project: Path
) -> None:
    (project / "kept").mkdir()
    before = set(project.iterdir())
    done = run(
        *COMPILE[: 1 if "-gencode" in options else 2], *options, "mat mul.cu", "-o", "out", cwd=project, nvcc=nvcc
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    assert set(project.iterdir()) - before == {project / "out"}
    made = (project / "out").read_bytes()
    assert b"multiply" in made or b"109, 117, 108, 116" in made
    if "-ptx" in options:
        assert b"@woven" in made
    if "--keep-dir" in options:
        (kept,) = (project / "kept").glob("*.ptx")
        assert "@woven" in kept.read_text()


@needs_nvcc
@pytest.mark.parametrize(
    ("options", "source", "said"),
    [
        (
            ("-c",),
            "lane.cu",
            "lane.cu: its marks are compiled, not woven: a wl::Kernel selects a leader other than lane 0",
        ),
        (("-c", "-rdc=true"), "mat mul.cu", "not woven: relocatable device code"),
        (("-c", "-G"), "mat mul.cu", "not woven: debug code (-G) reads a kernel's buffer from memory"),
        (("-c", "-G"), "plain.cu", ""),
        (("-c",), "plain.cu", ""),
        (("-c", "-DWARPLENS=0"), "mat mul.cu", ""),
    ],
)
def test_what_cannot_be_woven_is_compiled_as_nvcc_does(
    options: tuple[str, ...], source: str, said: str, project: Path
) -> None:
    done = run(*COMPILE, *options, source, "-o", "x.o", cwd=project)
    assert done.returncode == 0
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == bool(said)
    if "-G" in options:
        return  # where its temporary files were is part of what a debugger is told
    plain = ["nvcc", *COMPILE, *options, f"-I{PATH.parent}", source, "-o", "y.o"]
    subprocess.run(plain, check=True, cwd=project)
    sections = [_device_code(project / name) for name in ("x.o", "y.o")]
    assert sections[0] == sections[1]


def _device_code(path: Path) -> bytes:
    """The device code in an object, without what names the temporary files."""
    out = path.with_suffix(".fat")
    subprocess.run(["objcopy", "-O", "binary", "--only-section=.nv_fatbin", path, out], check=True)
    return re.sub(rb"tmpxft_\w+", b"", out.read_bytes())


@needs_nvcc
def test_a_kernel_without_a_track_is_named_as_its_author_did(project: Path) -> None:
    source = '#include <warplens.cuh>\nnamespace app { __global__ void forgot(int* x) { WL_REGION("a"); *x = 1; } }\n'
    (project / "forgot.cu").write_text(source)
    done = run(*COMPILE, "-c", "forgot.cu", "-o", "x.o", cwd=project)
    assert done.returncode
    assert "forgot has marks but no wl::Kernel: begin it with `wl::Kernel k(prof);`" in done.stderr


@needs_nvcc
def test_what_ptxas_does_not_take_is_compiled_as_nvcc_does(project: Path) -> None:
    nvcc, ptxas = project / "tools" / "nvcc", project / "tools" / "ptxas"
    ptxas.parent.mkdir()
    ptxas.write_text(
        '#!/bin/sh\nfor a; do grep -qs -e @woven -- "$a" && echo "ptxas fatal: no" >&2 && exit 255; done\nptxas "$@"\n'
    )
    nvcc.write_text(
        f'#!/bin/sh\n"{NVCCS[0]}" "$@" 2>"{project}/said"; code=$?\n'
        f'sed "s|^#\\$ ptxas|#\\$ \'{ptxas}\'|" "{project}/said" >&2\nexit $code\n'
    )
    for tool in (nvcc, ptxas):
        tool.chmod(0o755)
    done = run(*COMPILE, "-c", "mat mul.cu", "-o", "x.o", cwd=project, nvcc=str(nvcc))
    assert (done.returncode, done.stderr.splitlines()) == (
        0, ["warplens nvcc: mat mul.cu: its marks are compiled, not woven: ptxas does not take it: ptxas fatal: no"]
    )  # fmt: skip
    subprocess.run([NVCCS[0], *COMPILE, "-c", f"-I{PATH.parent}", "mat mul.cu", "-o", "y.o"], check=True, cwd=project)
    assert _device_code(project / "x.o") == _device_code(project / "y.o")


@needs_nvcc
def test_mistakes_are_told_in_nvccs_own_words(project: Path) -> None:
    (project / "bad.cu").write_text("#include <warplens.cuh>\n__global__ void k() { nothing(); }\n")
    for arguments in (
        ("-c", "bad.cu"),
        ("-c", "absent.cu"),
        ("-c", "--no-such-option", "plain.cu"),
        ("--version",),
        (),
    ):
        ours = run(*COMPILE, *arguments, cwd=project)
        theirs = subprocess.run(
            ["nvcc", *COMPILE, *arguments, f"-I{PATH.parent}"], cwd=project, capture_output=True, text=True
        )
        assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)
    assert not list(project.glob("warplens-nvcc-*"))


@needs_nvcc
@pytest.mark.slow
def test_several_sources_a_rule_for_make_and_cmakes_launcher(project: Path) -> None:
    done = run(shutil.which("nvcc"), *COMPILE, "-c", "mat mul.cu", "-MD", "-MF", "ours.d", "-o", "x.o", cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    plain = ["nvcc", *COMPILE, "-c", "mat mul.cu", "-MD", "-MF", "theirs.d", "-o", "x.o", f"-I{PATH.parent}"]
    subprocess.run(plain, check=True, cwd=project)
    assert (project / "ours.d").read_text() == (project / "theirs.d").read_text()
    done = run(
        *COMPILE, "-DSTANDALONE", "--shared", "-Xcompiler", "-fPIC", "mat mul.cu", "lane.cu", "-o", "x.so", cwd=project
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1)
    assert (project / "x.so").exists()


@needs_nvcc
def test_nvcc_without_arguments_says_what_it_needs(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["nvcc"]) != 0
    assert "no input files" in capfd.readouterr().err.lower()


def test_the_rule_for_make_is_asked_for_apart() -> None:
    given = ["-c", "a.cu", "-o", "a.o", "--generate-dependencies-with-compile", "--dependency-output", "a.d"]
    assert rule_arguments(given) == ["a.cu", "-M", "-MT", "a.o"]
    assert rule_arguments(["-MMD", "-MT", "t", "--output-file=a.o", "a.cu"]) == ["-MM", "-MT", "t", "a.cu"]
    assert rule_arguments(["-c", "a.cu"]) == []


def test_which_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "nvcc"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("NVCC", "warplens nvcc")  # as make exports it: not itself
    assert find_nvcc() == str(program)
    monkeypatch.setenv("NVCC", "elsewhere/nvcc")
    with pytest.raises(WarplensError, match="elsewhere/nvcc: no such program"):
        find_nvcc()
    monkeypatch.delenv("NVCC")
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert main(["nvcc", "-c", "k.cu"]) == 1
    assert "no nvcc on PATH" in capsys.readouterr().err
    assert main(["nvcc", "--any-block", "--whole-warps", "k.cu"]) == 2


@needs_nvcc
def test_ptx_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from warplens.frontends.nvcc import step_runner
    from warplens.ptx import tree

    parsed, assembled = [], []
    module, assemble = tree._Parser.module, NvccPtxas.assemble

    def count(parser: Any) -> Any:
        parsed.append(parser.source)
        return module(parser)

    def squeeze(ptxas: NvccPtxas, text: str) -> Cubin:
        """As if the first weavings spilled, and the kernels took many registers."""
        build = assemble(ptxas, text)
        assembled.append(text)
        spills = "24 bytes spill stores" if len(assembled) < 3 else "0 bytes spill stores"
        log = re.sub(r"\d+ bytes spill stores", spills, build.log)
        return Cubin(build.path, re.sub(r"Used \d+ reg", "Used 99 reg" if "@woven" in text else "Used 40 reg", log))

    monkeypatch.setattr(tree._Parser, "module", count)
    monkeypatch.setattr(NvccPtxas, "assemble", squeeze)
    command = [*COMPILE, "-cubin", str(MATMUL), "-o", str(tmp_path / "x.cubin")]
    assert step_runner.NvccCall(NVCCS[0], command).run() == 0
    assert len(assembled) == 5, "as asked, two lighter weavings, plain, and with a register limit"
    assert [".maxnreg" in text for text in assembled] == [False] * 4 + [True]
    assert len(parsed) == 1


@needs_nvcc
def test_small_kernels_take_few_registers_for_finding_their_track(tmp_path: Path) -> None:
    """30 where stores to the launch header kept its address, or ptxas unrolled the copying of names."""
    source = ROOT / "benchmarks" / "kernels" / "micro.cu"
    done = run("-std=c++17", "-arch=sm_90a", "-DDESIGN=1", "-DPAIRS=1", "-Xptxas", "-v", "-cubin", source, "-o", "x",
               cwd=tmp_path)  # fmt: skip
    (registers,) = re.findall(r"Used (\d+) registers", done.stderr)
    assert int(registers) <= 24


LOG = """ptxas info    : 11 bytes gmem, 40 bytes cmem[3]
ptxas info    : Compiling entry function '_Z1kPi' for 'sm_90'
ptxas info    : Function properties for _Z1kPi
    8 bytes stack frame, 24 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 8 bytes cumulative stack size
ptxas info    : Compile time = 2.5 ms
ptxas info    : Function properties for called
    0 bytes stack frame, 48 bytes spill stores, 0 bytes spill loads
ptxas warning : Local memory used
ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas info    : Compiling entry function 'other' for 'sm_90'
ptxas info    : Function properties for other
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers
"""


def test_what_ptxas_says_of_each_kernel_and_what_of_it_is_shown() -> None:
    from warplens.frontends.nvcc.dryrun import Step

    ptxas, build = NvccPtxas(Step('ptxas "a b.ptx" -o x', {}), "a b.ptx", Path()), Cubin(Path(), LOG)
    assert ptxas.resources(build, ["_Z1kPi", "other", "missing"]) == {
        "_Z1kPi": Resources(registers=40, spills=24),
        "other": Resources(registers=12, spills=0),
        "missing": UNUSABLE,
    }
    assert [line.partition(":")[2][:8] for line in ptxas.printed(build).splitlines()] == [" Local m", " (C7511)"]
    asked = NvccPtxas(Step("ptxas -v x.ptx -o x", {}), "x.ptx", Path())
    assert asked.printed(build) == LOG


@needs_nvcc
@each_nvcc
@pytest.mark.parametrize(
    "arguments",
    [
        ("-MD", "-c", "plain.cu"),
        pytest.param(("-MMD", "-MP", "-c", "mat mul.cu", "plain.cu"), marks=pytest.mark.slow),
        pytest.param(("-MD", "-c", "plain.cu", "-o", "kept/p.o"), marks=pytest.mark.slow),
        ("-MMD", "-c", "-odir", "kept", "plain.cu"),
        pytest.param(("-MMD", "-lib", "plain.cu", "lane.cu", "-o", "kept/p.a"), marks=pytest.mark.slow),
    ],
)
def test_rules_for_make_lie_where_nvcc_puts_them(nvcc: str, arguments: tuple[str, ...], project: Path) -> None:
    (project / "kept").mkdir()
    done = run(*COMPILE, *arguments, cwd=project, nvcc=nvcc)
    assert (done.returncode, done.stdout) == (0, "")
    ours = {path: path.read_text() for path in project.rglob("*.d")}
    subprocess.run([nvcc, *COMPILE, *arguments, f"-I{PATH.parent}"], check=True, cwd=project)
    assert ours
    assert ours == {path: path.read_text() for path in project.rglob("*.d")}


@needs_nvcc
def test_what_only_nvcc_can_do_is_left_to_it_and_told(project: Path) -> None:
    with (project / "plain.cu").open() as source:
        command = [sys.executable, "-m", "warplens", "nvcc", *COMPILE, "-x", "cu", "-c", "-", "-o", "x.o"]
        done = subprocess.run(command, cwd=project, stdin=source, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        0, "warplens nvcc: marks are compiled, not woven: the source is read from a pipe\n"
    )  # fmt: skip
    done = run(*COMPILE, "-c", "plain.cu", "-time", "t.csv", cwd=project)
    assert (done.returncode, "nvcc times its steps" in done.stderr) == (0, True)
    compiler = next(line for line in (project / "t.csv").read_text().splitlines() if " cicc " in line)
    assert float(compiler.split(",")[-2]) > 1, "milliseconds of a compilation, not of a dry run"
    (project / "options").write_text("-MD\n-MF x.d")
    done = run(*COMPILE, "-c", "plain.cu", "-optf", "options", cwd=project)
    assert (done.returncode, "not woven: rules for make" in done.stderr, (project / "x.d").exists()) == (0, True, True)


@needs_nvcc
def test_options_may_come_from_the_environment_or_a_file(project: Path) -> None:
    done = run(*COMPILE, "-c", "plain.cu", cwd=project, NVCC_APPEND_FLAGS="--dryrun")
    assert (done.returncode, "#$ ptxas" in done.stderr, (project / "plain.o").exists()) == (0, True, False)
    (project / "options").write_text("-v")
    done = run(*COMPILE, "-c", "plain.cu", "--options-file", "options", cwd=project)
    assert (done.returncode, "#$ ptxas" in done.stderr, (project / "plain.o").exists()) == (0, True, True)


@needs_nvcc
def test_a_mistake_that_ptxas_finds_is_not_laid_to_the_marks(project: Path) -> None:
    (project / "bad.cu").write_text(SPECIALISED.replace("WL_REGION", 'asm volatile("bogus.u32 r;"); WL_REGION', 1))
    done = run(*COMPILE, "-c", "bad.cu", cwd=project)
    assert (done.returncode, "'bogus'" in done.stderr, "warplens nvcc:" in done.stderr) == (255, True, False)


@needs_nvcc
def test_a_script_named_in_the_environment_may_call_warplens(project: Path) -> None:
    script = project / "compile"  # `make NVCC=compile` exports the name
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m warplens nvcc "$@"\n')
    script.chmod(0o755)
    command = [str(script), *COMPILE, "-c", "plain.cu"]
    done = subprocess.run(command, cwd=project, timeout=100, env={**os.environ, "NVCC": str(script)})
    assert (done.returncode, (project / "plain.o").exists()) == (0, True)
