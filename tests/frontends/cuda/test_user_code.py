"""Legal but unusual user code around the marks: it compiles without a warning, or the message says what to change."""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import pytest

from tests.support.cuda_compilers import OFF, ON, needs_nvrtc, needs_sass, nvcc_compilers, sass
from warplens.cuda import compile as compile_cuda
from warplens.errors import WarplensError
from warplens.frontends.cuda.nvrtc import compile_cubin, cuda_includes
from warplens.record.c_header import PATH
from warplens.record.name_table import NAME_MAGIC, scan

VALUES = r"""
#include <warplens.cuh>
struct Bits { unsigned low : 5, high : 27; };
template <int A, int B> __device__ int two(int v) { return v * A + B; }
extern "C" __global__ void values(Bits* bits, const volatile short* shorts, wl::Buffer prof) {
  wl::Kernel k(prof);
  bool flag = threadIdx.x & 1;
  signed char byte = -3; unsigned char octet = 200; short narrow = -5; unsigned short word = 65535; wchar_t wide = L'x';
  long signed_long = -1; unsigned long long large = ~0ull; float real = 1.5f; double exact = 2.5;
  WL_VALUE("bool", flag); WL_VALUE("byte", byte); WL_VALUE("octet", octet); WL_VALUE("narrow", narrow);
  WL_VALUE("word", word); WL_VALUE("wide", wide); WL_VALUE("long", signed_long); WL_VALUE("large", large);
  WL_VALUE("real", real); WL_VALUE("exact", exact); WL_VALUE("volatile", shorts[0]);
  WL_VALUE("bit field", bits->low); WL_VALUE("address", bits); WL_VALUE("comma", two<1, 2>(3));
  WL_VALUE("lambda", [&] { return signed_long + 1; }());
  WL_ITERATION("iteration", two<1, 2>(4)); WL_ASYNC_BEGIN("copy", two<1, 2>(5)); WL_ASYNC_END("copy", two<1, 2>(5));
  bits->high = __syncthreads_count(two<1, 2>(3) > 1) + __syncthreads_and(two<1, 2>(6)) + __syncthreads_or(two<1, 2>(7));
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("nvcc", nvcc_compilers())
@pytest.mark.parametrize("options", [(), ("-DWARPLENS=0",), ("-std=c++20",)])
def test_values_of_every_kind_compile_without_a_warning_also_switched_off(
    tmp_path: Path, nvcc: str, options: tuple[str, ...]
) -> None:
    """Switched off, variables that only a mark reads still count as used."""
    source = tmp_path / "values.cu"
    source.write_text(VALUES)
    strict = ["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror", f"-I{PATH.parent}", "-arch=sm_90"]
    command = [nvcc, *strict, *options, "-c", source, "-o", tmp_path / "v.o"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_nvrtc
def test_nvrtc_takes_the_same_values() -> None:
    module = compile_cuda(VALUES, arch="sm_90a")
    assert {"bit field", "address", "comma", "lambda", "iteration"} <= set(module.regions().values())
    assert module.ptx is not None, "the weaver takes them too"


@needs_nvrtc
@needs_sass
def test_switched_off_a_value_is_never_evaluated(tmp_path: Path) -> None:
    unmarked = re.sub(r'WL_\w+\(".*?\);(?= |\n)', "", VALUES)
    assert "WL_" not in unmarked
    codes = [sass(compile_cubin(source, "v.cu", "sm_90a", OFF), tmp_path) for source in (VALUES, unmarked)]
    assert codes[0] == codes[1]


def kernel(body: str, head: str = "") -> str:
    start = 'extern "C" __global__ void k(int* x, wl::Buffer prof) { wl::Kernel recording(prof);'
    return "\n".join(["#include <warplens.cuh>", head, start, body, "}"])


@needs_nvrtc
@pytest.mark.parametrize("options", [ON, OFF], ids=["on", "off"])
@pytest.mark.parametrize("mark", ["WL_REGION", "WL_BEGIN", "WL_INSTANT"])
def test_a_region_needs_a_name_on_and_off(mark: str, options: tuple[str, ...]) -> None:
    with pytest.raises(WarplensError, match="a region needs a name"):
        compile_cubin(kernel(f'{mark}("");'), "k.cu", "sm_90", options)


@needs_nvrtc
@pytest.mark.parametrize(
    ("head", "body", "message"),
    [
        ("", 'WL_REGION("a"); WL_REGION("b");', "give_each_WL_REGION_a_line_of_its_own"),
        ("", '{ wl::Kernel again(prof); WL_INSTANT("x"); }', "two recordings are opened in one function"),
        (
            '__device__ void f(int* x, wl::Link& l) { wl::Callee here(l); WL_INSTANT("f"); x[0]++; }',
            "wl::Link link; f(x, link);",
            "a function with a wl::Callee is __noinline__",
        ),
    ],
)
def test_what_the_header_cannot_do_is_said_in_its_own_words(head: str, body: str, message: str) -> None:
    with pytest.raises(WarplensError, match=message):
        compile_cubin(kernel(body, head), "k.cu", "sm_90", ON)


@needs_nvrtc
@pytest.mark.parametrize(
    ("marks", "macro"),
    [
        ('WL_REGION("a"); WL_REGION("b");', "WL_REGION"),
        ('WL_WAIT("a", 1, 0); WL_WAIT("b", 2, 0);', "WL_WAIT"),
    ],
)
def test_two_on_one_line_are_refused_before_a_profile_compiles_them(marks: str, macro: str) -> None:
    """compile() compiles without marks."""
    with pytest.raises(WarplensError, match=f"give_each_{macro}_a_line_of_its_own"):
        compile_cuda(kernel(marks), arch="sm_90")
    nested = marks.replace("; WL", "; { WL", 1) + " }"
    other = 'WL_REGION("c"); WL_WAIT("d", 3, 0);'
    assert set(compile_cuda(kernel(f"{nested}\n{other}"), arch="sm_90").regions().values()) == {"a", "b", "c", "d"}


@needs_nvrtc
@pytest.mark.parametrize("own", ["#include <cuda/std/cstdint>", "typedef unsigned long long uint64_t;"])
def test_sm_profiler_goes_with_nvrtcs_own_integers(own: str) -> None:
    if "include" in own and not cuda_includes():
        pytest.skip("needs the CUDA headers")
    for head in (f'{own}\n#include "sm_profiler.h"', f'#include "sm_profiler.h"\n{own}'):
        body = "sm_profiler_event_start((uint64_t*)x, 31, sm_profiler_get_lane_id() == 0);"
        source = kernel(body, head)
        assert compile_cubin(source, "k.cu", "sm_90", (*ON, *cuda_includes()))


@needs_nvrtc
def test_sources_in_any_encoding_and_with_neighbours_compile(tmp_path: Path) -> None:
    """Names are C strings; what is not UTF-8 is read as Latin-1."""
    (tmp_path / "near.h").write_text('#define NEAR WL_INSTANT("near");')
    source = kernel('NEAR WL_INSTANT("größe"); WL_INSTANT("cut\\0off");', '#include "near.h"')
    for encoding in ("utf-8", "utf-8-sig", "latin-1"):
        path = tmp_path / "k.cu"
        path.write_bytes(source.encode(encoding))
        module = compile_cuda(path, arch="sm_90")
        assert module.ptx is not None
        assert set(module.regions().values()) == {"near", "größe", "cut"}
        assert scan(module.cubin()).regions == module.regions(), "a cubin says the same"


@needs_nvrtc
def test_the_regions_of_functions_that_only_the_weaver_reaches_are_known() -> None:
    function = '__noinline__ __device__ int f(int v) { WL_REGION("apart"); return v + 1; }'
    assert set(compile_cuda(kernel("x[0] = f(x[1]);", function), arch="sm_90").regions().values()) == {"apart"}


@needs_nvrtc
def test_instances_of_a_template_share_the_names_of_their_marks() -> None:
    """Constant memory has 64 KiB: with an object for each instance, 50 instances of 20 marks did not compile."""
    marks = "\n".join(f'{{ WL_REGION("part {i}"); x[{i}] += N; }}' for i in range(20))
    template = f"template <int N> __global__ void many(int* x, wl::Buffer p) {{ wl::Kernel k(p);\n{marks}\n}}\n"
    instances = "".join(f"template __global__ void many<{n}>(int*, wl::Buffer);\n" for n in range(4))
    cubin = compile_cubin(kernel("", template + instances), "k.cu", "sm_90", ON)
    assert len(scan(cubin).regions) == 20
    assert cubin.count(struct.pack("<Q", NAME_MAGIC)) == 20 + 1, "and the one that marks their end"


USUAL_MACROS = [f"-D{name}=4096" for name in "ABCDEFGHIJKLMNOPQRSUVWXYZ"]
"""Without T, which CUDA's own headers use."""


@needs_nvrtc
@pytest.mark.parametrize("switch", [ON, OFF, ("-DWARPLENS_WOVEN=1",)], ids=["on", "off", "woven"])
def test_programs_may_define_single_letters_as_macros(switch: tuple[str, ...]) -> None:
    """Sizes of a problem are often given as -DN=4096 -DM=...: the headers have no name of one capital letter."""
    source = kernel('WL_REGION("all"); WL_VALUE("first", x[0]); WL_BEGIN("b"); x[1] = N; WL_END("b");')
    assert compile_cubin(source, "k.cu", "sm_90", (*switch, *USUAL_MACROS))


@pytest.mark.parametrize("header", sorted(PATH.parent.iterdir()), ids=lambda path: path.name)
def test_capital_names_in_a_header_have_its_prefix(header: Path) -> None:
    """Host code, too, which NVRTC does not read."""
    code = re.sub(r'//[^\n]*|"(?:\\.|[^"\\\n])*"', "", header.read_text())
    names = set(re.findall(r"\b[A-Z][A-Z0-9_]*\b", code)) - {"FILE"}
    assert not {name for name in names if not name.startswith(("WL_", "WARPLENS", "SM_PROFILER_"))}
