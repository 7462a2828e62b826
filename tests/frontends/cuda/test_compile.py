"""What the compilers make of the header: every architecture without a warning, and the record's machine code."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support.cuda_compilers import (
    KERNELS,
    OFF,
    ON,
    RING,
    compile_with_nvrtc,
    names_sent,
    needs_nvrtc,
    needs_sass,
    nvcc_compilers,
    nvrtc_libraries,
    sass,
    usage,
)
from tests.support.paths import ROOT
from warplens.cuda import compile as compile_cuda
from warplens.cuda import flags
from warplens.errors import UsageError, WarplensError
from warplens.frontends.cuda.module import Module, find_kernel, kernel_names, plain_name
from warplens.frontends.cuda.nvrtc import compile_cubin, cuda_includes
from warplens.record.c_header import PATH
from warplens.record.name_table import scan

BENCHMARKS = ROOT / "benchmarks" / "kernels"


def _unnamed(instructions: list[str]) -> list[str]:
    """Without the mangled names of called functions, which hold their parameters' types."""
    return [re.sub(r"`\(.*?\)", "", line) for line in instructions]


def opcodes(instructions: list[str]) -> Counter[str]:
    return Counter(re.sub(r"^@!?U?P\d+\s+", "", line).split()[0] for line in instructions)


@pytest.mark.skipif(not nvrtc_libraries(), reason="needs nvidia-cuda-nvrtc or nvidia-cuda-nvrtc-cu12")
@pytest.mark.parametrize("library", nvrtc_libraries().values(), ids=nvrtc_libraries().keys())
@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120"])
def test_nvrtc_compiles_without_a_warning(arch: str, library: Path) -> None:
    if arch == "sm_70" and library.name.endswith("13"):
        pytest.skip("CUDA 13 has no Volta")
    for options in (ON, RING, OFF):
        log, cubin = compile_with_nvrtc(library, arch, options)
        deprecated = arch == "sm_70" and "deprecated" in log and "error" not in log
        assert not log or deprecated, log
        if options != OFF:
            assert names_sent(cubin) == scan(cubin).regions
            assert "inner" in scan(cubin).regions.values()


@pytest.mark.slow
@pytest.mark.parametrize("nvcc", nvcc_compilers())
@pytest.mark.parametrize("options", [(), ("-DWARPLENS=0",), ("-DWARPLENS_RING=1",), ("-G",), ("-rdc=true",)])
def test_nvcc_compiles_device_and_host_code_without_a_warning(
    tmp_path: Path, nvcc: str, options: tuple[str, ...]
) -> None:
    source = tmp_path / "both.cu"
    source.write_text(
        '#include <warplens_host.h>\n#include "kernels.cu"\nint main() { wl::Capture c; c.write("x"); }\n'
    )
    (tmp_path / "kernels.cu").write_text(KERNELS)
    strict = ["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror"]
    command = [nvcc, "-std=c++17", "-arch=sm_90a", f"-I{PATH.parent}", *strict, *options]
    done = subprocess.run([*command, "-c", source, "-o", tmp_path / "k.o"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("nvcc", nvcc_compilers())
def test_nvcc_compiles_for_every_gpu_from_volta_on(tmp_path: Path, nvcc: str) -> None:
    source = tmp_path / "kernels.cu"
    source.write_text(KERNELS)
    known = subprocess.run([nvcc, "--list-gpu-code"], check=True, capture_output=True, text=True).stdout.split()
    gpus = [gpu for gpu in known if 70 <= int(gpu.removeprefix("sm_")) <= 120]
    assert "sm_90" in gpus
    strict = ["-Werror", "all-warnings", "-Wno-deprecated-gpu-targets", "-Xcompiler", "-Wall,-Wextra,-Werror"]
    each = [f"-gencode=arch=compute_{gpu[3:]},code={gpu}" for gpu in gpus]
    command = [nvcc, "-std=c++17", f"-I{PATH.parent}", *strict, *each, "-c", source, "-o", tmp_path / "k.o"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


CPP14_MARKS = """
#define WARPLENS_CPP14
#include <warplens.cuh>
enum Phase { first, second };
__global__ void marked(float* x, wl::Buffer prof) {
  wl::Kernel<> k(prof);
  WL_REGION("body");
  WL_BEGIN("step"); x[0] += 1.0f; WL_END("step");
  WL_VALUE("phase", second); WL_VALUE("x", x[0]); WL_ASYNC_BEGIN("copy", 3); WL_ASYNC_END("copy", 3);
}
"""
CPP14_RANGES = """
#include <sm_profiler.h>
__global__ void ranges(uint64_t* profile, float* x) {
  const bool leads = sm_profiler_get_lane_id() == 0;
  sm_profiler_event_start(profile, 0, leads);
  x[threadIdx.x] *= 2.0f;
  sm_profiler_event_end(profile, 0, leads);
}
int main() {
  sm_profiler_buffer_t profile = sm_profiler_create_buffer(4, 4, 100, 1);
  uint32_t blocks = SM_PROFILER_MAX_EVENT_TYPES, groups, events;
  sm_profiler_get_info(profile, &blocks, &groups, &events);
  sm_profiler_init_buffer(profile);
  return sm_profiler_export_to_file(profile, "out.json");
}
"""


@pytest.mark.parametrize("nvcc", nvcc_compilers())
@pytest.mark.parametrize(
    ("source", "options"),
    [(CPP14_MARKS, ()), (CPP14_MARKS, ("-DWARPLENS_WOVEN=1",)), (CPP14_MARKS + CPP14_RANGES, ("-G",))],
    ids=["direct", "woven", "sm_profiler"],
)
def test_the_headers_compile_as_cpp14(tmp_path: Path, nvcc: str, source: str, options: tuple[str, ...]) -> None:
    (tmp_path / "k.cu").write_text(source)
    strict = ["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror"]
    command = [nvcc, "-std=c++14", "-arch=sm_90", f"-I{PATH.parent}", *strict, *options]
    done = subprocess.run([*command, "-c", tmp_path / "k.cu", "-o", tmp_path / "k.o"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


OTHER_DATA = """
struct alignas(16) Quad { float x, y, z, w; };
__device__ int one = 5;
__device__ char byte = 'c';
__device__ double real = 2.0;
__device__ float table[3000] = {1.0f};
__device__ double doubles[9] = {1.0};
__device__ Quad quads[20] = {{1, 2, 3, 4}};
__constant__ int constant = 5;
__constant__ double reals[50] = {2.0};
__constant__ Quad quad = {1, 2, 3, 4};
__constant__ float coefficients[4000] = {1.0f};
__device__ double more(int i) { return constant + reals[i] + quad.y + coefficients[i]; }
extern "C" __global__ void user(double* out) { *out += one + byte + real + table[1] + doubles[1] + quads[2].y; }
extern "C" __global__ void further(double* out) { *out += more(one); }
"""


@pytest.mark.slow
@pytest.mark.parametrize("nvcc", nvcc_compilers())
@pytest.mark.parametrize("options", [("-cubin",), ("-cubin", "-G"), ("-cubin", "-rdc=true", "-dlink")])
def test_names_lie_together_among_the_users_own_constants(tmp_path: Path, nvcc: str, options: tuple[str, ...]) -> None:
    for number, source in enumerate((KERNELS + OTHER_DATA, MICRO.replace("MARKS", 'WL_INSTANT("other file");'))):
        (tmp_path / f"{number}.cu").write_text(source)
    command = [nvcc, "-std=c++17", "-arch=sm_90", f"-I{PATH.parent}"]
    files = [str(tmp_path / "0.cu")]
    if "-dlink" in options:
        files = [str(tmp_path / f"{number}.o") for number in range(2)]
        for file in files:
            subprocess.run([*command, "-rdc=true", "-c", file.replace(".o", ".cu"), "-o", file], check=True)
    subprocess.run([*command, *options, *files, "-o", tmp_path / "all.cubin"], check=True)
    cubin = (tmp_path / "all.cubin").read_bytes()
    found = names_sent(cubin)
    assert found == scan(cubin).regions
    assert {"step", "lane 0", "round"} <= set(found.values())
    assert ("other file" in found.values()) == ("-dlink" in options)


@pytest.mark.skipif(not nvrtc_libraries(), reason="needs nvidia-cuda-nvrtc")
def test_nvrtc_takes_two_regions_in_one_scope() -> None:
    source = MICRO.replace("MARKS", 'WL_REGION("a");\nWL_REGION("b");\nv += 1;')
    for library in nvrtc_libraries().values():
        log, cubin = compile_with_nvrtc(library, "sm_90", ON, source)
        assert not log
        assert set(names_sent(cubin).values()) == {"a", "b"}


MICRO = """
#include <warplens.cuh>
extern "C" __global__ void k(float* x, int n, wl::Buffer prof) {
  wl::Kernel recording(prof);
  float v = x[threadIdx.x];
#pragma unroll 1
  for (int i = 0; i < n; ++i) { MARKS }
  x[threadIdx.x] = v;
}
"""


@needs_nvrtc
@needs_sass
@pytest.mark.parametrize("ring", [False, True])
def test_one_record_is_one_clock_read_and_one_predicated_store(tmp_path: Path, ring: bool) -> None:
    options = RING if ring else ON
    marks = 'WL_REGION("a"); v = v * v; { WL_REGION("b"); v += 1; } WL_INSTANT("c"); v = v * v;'
    plain = re.sub(r"WL_\w+\(.*?\);", "", marks)
    with_marks = sass(compile_cubin(MICRO.replace("MARKS", marks), "k.cu", "sm_90a", options), tmp_path)
    without = sass(compile_cubin(MICRO.replace("MARKS", plain), "k.cu", "sm_90a", options), tmp_path)
    stores = [line for line in with_marks if "STG.E.EF.64" in line]
    assert len(stores) == 5
    assert all(line.startswith("@P") for line in stores)
    assert opcodes(with_marks)["CS2R.32"] == 5
    assert opcodes(without)["CS2R.32"] == opcodes(without)["STG.E.EF.64"] == 0
    added = opcodes(with_marks) - opcodes(without)
    assert not {
        name for name in added if name.startswith(("BRA", "BSSY", "BSYNC", "LDL", "STL", "MEMBAR", "ATOM", "RED"))
    }
    twice = sass(
        compile_cubin(
            MICRO.replace("MARKS", marks + marks.replace('WL_REGION("a");', 'WL_INSTANT("d");')),
            "k.cu",
            "sm_90a",
            options,
        ),
        tmp_path,
    )
    work = len([line for line in twice if line.startswith(("FMUL", "FADD"))]) // 2
    per_record = (len(twice) - len(with_marks) - work) / 4
    assert per_record <= (8 if ring else 6.5), f"{per_record} instructions per record"


@needs_nvrtc
@needs_sass
@pytest.mark.parametrize(
    ("file", "unmarked", "marked", "most"),
    [
        ("micro.cu", ("-DDESIGN=0", "-DPAIRS=1"), ("-DDESIGN=1", "-DPAIRS=1"), 4),  # against clock reads alone
        ("micro.cu", ("-DDESIGN=0", "-DPAIRS=4"), ("-DDESIGN=1", "-DPAIRS=4"), 6),
        ("wgmma.cu", OFF, ON, 4),
        ("wgmma.cu", OFF, RING, 4),
    ],
)
def test_marks_take_few_registers(
    file: str, unmarked: tuple[str, ...], marked: tuple[str, ...], most: int, tmp_path: Path
) -> None:
    source = (BENCHMARKS / file).read_text()
    plain, recording = (
        usage(compile_cubin(source, file, "sm_90a", options), tmp_path) for options in (unmarked, marked)
    )
    assert recording["REG"] <= plain["REG"] + most
    assert recording["LOCAL"] == recording["STACK"] == 0


@needs_nvrtc
@needs_sass
def test_no_clock_read_follows_a_block_barrier_at_once(tmp_path: Path) -> None:
    """It would be issued before the barrier holds the warp; the mark reads the time of arrival, not of departure."""
    waits = ["__syncthreads();", "v += __syncthreads_count(v > 0);", 'asm volatile("bar.sync 1, 64;"); WL_SETTLE();']
    marks = "".join(f'WL_BEGIN("wait"); {wait} WL_END("wait");' for wait in waits)
    source = MICRO.replace("MARKS", marks)
    for options, expected in ((ON, [True, True, True]), ((*ON, "-DWARPLENS_BARRIERS=0"), [False, False, True])):
        lines = sass(compile_cubin(source, "k.cu", "sm_90a", options), tmp_path)
        parts = re.findall(r"BAR\.(?:SYNC|RED).*?CS2R", "\n".join(lines), re.S)
        assert [bool(re.search("NOP|WARPSYNC", part)) for part in parts] == expected, parts


@needs_nvrtc
@needs_sass
@pytest.mark.parametrize("ring", [False, True])
def test_an_anchor_reads_both_clocks_before_it_stores_either(tmp_path: Path, ring: bool) -> None:
    """Behind a store, the clock read waits until that has taken its registers: 19 ns on an idle H200, more on a busy
    one, by which inner anchors disagreed with those of a track's start."""
    source = MICRO.replace("MARKS", 'v = v * v; WL_ANCHOR(); v = v * v; WL_VALUE("v", v);')
    lines = sass(compile_cubin(source, "k.cu", "sm_90a", RING if ring else ON), tmp_path)
    timer = [at for at, line in enumerate(lines) if "SR_GLOBALTIMERLO" in line][1]
    (read,) = [at for at, line in enumerate(lines[timer : timer + 6]) if "SR_CLOCKLO" in line]
    assert not any("STG" in line for line in lines[timer : timer + read])


@needs_nvrtc
@needs_sass
def test_switched_off_leaves_the_code_of_a_source_without_marks(tmp_path: Path) -> None:
    bare = re.sub(r"^\s*wl::Kernel k\(.*?\);\n", "", KERNELS, flags=re.M)
    bare = (
        re.sub(r"\s*wl::(Callee here\(link\)|Link link);", "", bare)
        .replace(", wl::Link& link", "")
        .replace(", link)", ")")
    )
    bare = re.sub(r"WL_\w+\((?:[^()]|\([^()]*\))*\);", ";", bare)
    assert "WL_" not in bare
    assert "wl::Kernel" not in bare
    marked = compile_cubin(KERNELS, "k.cu", "sm_90a", OFF)
    unmarked = compile_cubin(bare, "k.cu", "sm_90a", ON)
    names = kernel_names(marked)
    assert len(names) == 10
    for name in names:
        assert _unnamed(sass(marked, tmp_path, name)) == _unnamed(sass(unmarked, tmp_path, name)), name


@needs_nvrtc
def test_a_mark_in_a_function_that_is_not_inlined_names_the_remedy() -> None:
    source = """#include <warplens.cuh>
    __noinline__ __device__ int f(int v) { WL_INSTANT("x"); return v + 1; }
    __global__ void k(int* o, wl::Buffer p) { wl::Kernel r(p); o[0] = f(o[1]); }"""
    with pytest.raises(WarplensError, match=r"k\.cu: a mark stands where no track is open.*wl::Callee here\(link\)"):
        compile_cubin(source, "k.cu", "sm_90", ON)


@needs_nvrtc
def test_region_names_reach_python_without_a_table() -> None:
    module = compile_cuda(KERNELS, arch="sm_90a")
    assert {"step", "inner", "manual", "tick", "lane 0", "copy"} <= set(module.regions().values())
    assert not Module(KERNELS, "k.cu", "sm_90a", ("-DWARPLENS=0",)).cubin("off").count(b"inner")


@needs_nvrtc
def test_compile_errors_are_the_compilers_own_words(tmp_path: Path) -> None:
    with pytest.raises(WarplensError, match="expected an expression"):
        compile_cuda("__global__ void k() { int x = ; }", arch="sm_90")
    with pytest.raises(WarplensError, match=r"absent\.cu: No such file"):
        compile_cuda(tmp_path / "absent.cu", arch="sm_90")
    with pytest.raises(UsageError, match="'stop' .* 'ring'"):
        flags("wrap")
    with pytest.raises(WarplensError, match=r"arch= is like 'sm_90'"):
        compile_cuda("__global__ void k() {}", arch="90")
    with pytest.raises(WarplensError, match="needs C[+][+]17"):
        compile_cuda(KERNELS, arch="sm_90", options="-std=c++14")


@pytest.mark.parametrize("source", ["", "  ", "\n\n"])
def test_an_empty_source_is_called_empty(source: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^compile\(\): the source is empty; give CUDA source or the path of"):
        compile_cuda(source, arch="sm_90")
    (tmp_path / "empty.cu").write_text(source)
    with pytest.raises(UsageError, match=r"empty\.cu: the source is empty"):
        compile_cuda(tmp_path / "empty.cu", arch="sm_90")


@needs_nvrtc
def test_a_compile_error_names_the_options_that_were_given_and_no_others() -> None:
    wrong, refused = "__global__ void k() { int x = ; }", "could not compile it for sm_90"
    with pytest.raises(WarplensError, match=f"^kernel.cu: NVRTC {refused}:\n"):
        compile_cuda(wrong, arch="sm_90")
    with pytest.raises(WarplensError, match=f"{refused} with -DX=1 -lineinfo:\n"):
        compile_cuda(wrong, arch="sm_90", options="-DX=1 -lineinfo")
    only_marked = "#include <warplens.cuh>\n#if WARPLENS\n#error marked\n#endif\n__global__ void k() {}"
    with pytest.raises(WarplensError, match=f"{refused} with marks and -DX=1:\n"):
        compile_cuda(only_marked, arch="sm_90", options="-DX=1").regions()


@needs_nvrtc
@pytest.mark.skipif(not cuda_includes(), reason="needs the CUDA headers")
def test_sources_may_include_what_comes_with_cuda() -> None:
    headers = "".join(f"#include <{name}>\n" for name in ("cooperative_groups.h", "cuda/barrier", "cuda_fp16.h"))
    source = (
        headers
        + """#include <warplens.cuh>
    __global__ void k(__half* x, wl::Buffer p) {
      wl::Kernel r(p);
      cooperative_groups::this_thread_block().sync();
      WL_VALUE("x", x[SHIFT]);
    }"""
    )
    assert compile_cuda(source, arch="sm_90", options="-DWIDE -DSHIFT=1").regions()


@needs_nvrtc
def test_an_unknown_kernel_is_refused_where_it_is_looked_up() -> None:
    both = "template <class Number> __global__ void scale(Number* x) { *x *= 2; }\n"
    both += "template __global__ void scale(int*);\ntemplate __global__ void scale(float*);\n"
    module = compile_cuda(both + "__global__ void gemm() {}", arch="sm_90")
    assert module["gemm"] is module["gemm"]
    with pytest.raises(UsageError, match=r"^kernel\.cu has no kernel 'nope' \(known: gemm, scale\)$"):
        module["nope"]
    with pytest.raises(UsageError, match="has no kernel 'gem' .did you mean 'gemm'"):
        module["gem"]
    with pytest.raises(UsageError, match="2 kernels are called 'scale'; name one by its symbol: _Z"):
        module["scale"]
    with pytest.raises(UsageError, match="has no kernel 'k' .there are none"):
        compile_cuda("__device__ void k() {}", arch="sm_90")["k"]


def test_kernels_are_found_by_their_plain_names() -> None:
    symbols = ["gemm", "_Z6nestedPiiN2wl6BufferE", "_ZN2ns4gemvEPfi", "_Z3dupIiEvT_", "_Z3dupIfEvT_"]
    assert [plain_name(symbol) for symbol in symbols] == ["gemm", "nested", "gemv", "dup", "dup"]
    # As nvcc and NVRTC spell anonymous namespaces, which hold digits of the file's.
    hidden = "38_GLOBAL__N__2defb97d_7_anon_cu__Z2goPi"
    spelled = [f"_ZN{hidden}4anonEPi", f"_ZN{hidden}5inner4deepILi3EEEvPi", f"_ZN1a{hidden}4bothEPi"]
    assert [plain_name(symbol) for symbol in spelled] == ["anon", "deep", "both"]
    assert find_kernel("nested", symbols) == "_Z6nestedPiiN2wl6BufferE"
    assert find_kernel("gemv", symbols) == "_ZN2ns4gemvEPfi"
    assert find_kernel("absent", symbols) is None
    with pytest.raises(UsageError, match="2 kernels are called 'dup'"):
        find_kernel("dup", symbols)
