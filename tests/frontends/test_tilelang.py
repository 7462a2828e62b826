"""TileLang: its launches, the Python lines of its statements, and regions around what it makes of them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.cpp_launches import libraries, run_scenario
from warplens import installed
from warplens.commands import doctor
from warplens.errors import UsageError, WarplensError
from warplens.frontends.driver_calls import loaded_code
from warplens.frontends.registry import FRONT_ENDS
from warplens.frontends.tilelang import frontend
from warplens.profiling.profile import Profile

needs_tilelang = pytest.mark.skipif(importlib.util.find_spec("tilelang") is None, reason="needs tilelang")
ARCHES = ["sm_80", "sm_90a", "sm_100a"]


def test_a_launch_is_known_by_the_kernel_that_is_called() -> None:
    def find(symbol: str) -> loaded_code.Recompiled | None:
        return loaded_code.Recompiled(lambda: f"PTX of {symbol}") if symbol == "main_kernel" else None

    with loaded_code.launching(find):
        assert loaded_code.ptx_source(None, "main_kernel", "9.0")() == "PTX of main_kernel"
        with pytest.raises(WarplensError, match="no library of this process has its PTX"):
            loaded_code.ptx_source(None, "another_kernel", "9.0")()
    with pytest.raises(WarplensError, match="no library of this process has its PTX"):
        loaded_code.ptx_source(None, "main_kernel", "9.0")()


def test_other_versions_and_machines_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def note(problem: Exception | None, reason: str = "") -> str:
        def refuse(*_: Any) -> None:
            if problem is not None:
                raise problem

        monkeypatch.setattr(frontend, "require", lambda *given: None)
        monkeypatch.setattr(frontend, "why_not", lambda: reason)
        monkeypatch.setattr(frontend, "install", refuse)
        profile = Profile(auto="all")
        assert frontend.start(profile) is None
        return profile.notes["tilelang"][0]

    assert note(None, "no C compiler found") == "its kernels run unmarked: no C compiler found"
    assert "warplens does not know this version of it (no JITKernel)" in note(ImportError("no JITKernel"))
    monkeypatch.setattr(installed, "find_spec", lambda name: object())
    monkeypatch.setattr(installed.metadata, "version", lambda name: "0.1.9")
    with pytest.raises(WarplensError, match=r"tilelang 0\.1\.9 is too old: warplens needs 0\.1\.15 or newer; pip"):
        installed.require("tilelang", "tilelang", "tilelang")
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    with pytest.raises(WarplensError, match="tilelang is not installed; install it with: pip install"):
        installed.require("tilelang", "tilelang", "tilelang")


@pytest.mark.parametrize(
    ("package", "version", "missing", "woven"),
    [
        ("tilelang", "0.1.15.post1", "", "yes"),
        ("tilelang", "0.1.9", "", "no: it is older than 0.1.15"),
        ("tilelang", "0.1.15", "nvcc", "no: nvcc was not found"),
        ("cuda-tile", "1.7.0", "", "yes"),
        ("cuda-tile", "1.6.2", "", "no: it is older than 1.7"),
        ("cuda-tile", "1.7.0", "tileiras", "no: tileiras was not found"),
    ],
)
def test_doctor_says_whether_kernels_can_be_woven(
    package: str, version: str, missing: str, woven: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "installed_version", lambda name: version)
    monkeypatch.setattr(doctor, "known_tool", lambda name: None if name == missing else f"/usr/bin/{name}")
    monkeypatch.setattr(doctor, "load_hooks", lambda: (None, None))
    found = doctor._front_end(next(one for one in FRONT_ENDS if one.package == package))
    assert (found.found, found.woven) == (version, woven)
    assert bool(found.remedy) == (woven != "yes")


def marked_source(function: Any, arch: str) -> tuple[str, str]:
    """The generated source of a function with marks, and its skeleton: marks and statements that matter."""
    from tests.support.tilelang_kernels import lowered
    from warplens.frontends.tilelang.generated_source import _lowered_again

    source = _lowered_again(lowered(function, arch))
    words = re.findall(r"@warplens ([BE] \S+?)\"|\b(tma_load|cp_async_gs|wgmma_ss|wgmma_rs|mma_sync|exp2f)\b", source)
    skeleton: list[str] = []
    for mark, code in words:
        word = mark or {"tma_load": "copy", "cp_async_gs": "copy", "exp2f": "exp"}.get(code, "mma")
        if not skeleton or skeleton[-1] != word:
            skeleton.append(word)
    return source, " ".join(skeleton)


@needs_tilelang
@pytest.mark.parametrize(
    ("kernel", "arch"), [*(("gemm", arch) for arch in ARCHES), ("attention", "sm_80"), ("attention", "sm_90a")]
)
def test_regions_change_nothing_but_marks(kernel: str, arch: str) -> None:
    from tests.support import tilelang_kernels
    from warplens.frontends.tilelang.generated_source import _bare

    make = getattr(tilelang_kernels, kernel)
    marked, _ = marked_source(make(), arch)
    plain, _ = marked_source(make(marked=False), arch)
    assert "@warplens" in marked
    assert "@warplens" not in plain
    assert _bare(marked) == _bare(plain)
    assert make().script() == make(marked=False).script(), "TileLang compiles and caches the same program"


@needs_tilelang
def test_regions_follow_their_statements_to_other_warps() -> None:
    from tests.support.tilelang_kernels import gemm

    _, found = marked_source(gemm(), "sm_90a")
    loads = "B main%20loop B load copy E load E main%20loop"
    assert found == f"{loads} B main%20loop B dot mma E dot E main%20loop B store E store"


@needs_tilelang
def test_regions_of_functions_that_are_compiled_when_they_are_called() -> None:
    from tests.support.tilelang_kernels import eager_gemm

    _, found = marked_source(eager_gemm(), "sm_90a")
    assert found == "B load copy E load B dot mma E dot"


@needs_tilelang
@pytest.mark.parametrize("arch", ARCHES)
def test_regions_of_loops_that_are_fused_and_rebuilt(arch: str) -> None:
    from tests.support import tilelang_kernels as kernels

    source, _ = marked_source(kernels.dequantised(), arch)
    marks = re.findall(r"@warplens ([BE] \S+?)\"|(__pack_half2|uchar2 v_ =)", source)
    order = [mark or "code" for mark, _ in marks]
    assert order.index("B unpack") < order.index("code") < order.index("E unpack")
    assert [mark for mark in order if mark != "code"] == [
        "B load", "E load", "B unpack", "E unpack", "B dot", "E dot"
    ]  # fmt: skip


@needs_tilelang
def test_regions_follow_their_statements_through_a_pipeline() -> None:
    from tests.support.tilelang_kernels import gemm

    _, found = marked_source(gemm(), "sm_80")
    once = "B load copy E load B dot mma E dot"
    assert found == f"B main%20loop B load copy E load {once} B dot mma E dot E main%20loop B store E store"


@needs_tilelang
def test_two_products_of_one_loop_are_told_apart() -> None:
    from tests.support.tilelang_kernels import attention

    _, found = marked_source(attention(), "sm_90a")
    assert "B qk mma E qk B softmax exp E softmax B pv mma E pv" in found


@needs_tilelang
@pytest.mark.parametrize("arch", ARCHES)
def test_statements_have_the_lines_of_the_python_source(arch: str) -> None:
    from tests.support import tilelang_kernels

    source, _ = marked_source(tilelang_kernels.gemm(marked=False), arch)
    file = Path(tilelang_kernels.__file__)
    lines = dict(enumerate(file.read_text().splitlines(), 1))
    found: dict[str, set[str]] = {}
    current = ""
    for line in source.splitlines():
        if directive := re.fullmatch(r'#line (\d+) "(.*)"', line):
            assert Path(directive[2]) == file, "no line names TileLang's own code"
            current = lines[int(directive[1])].strip()
        else:
            for operation in re.findall(r"\b(tma_load\(A|tma_load\(B|wgmma_ss|mma_sync)", line):
                found.setdefault(operation, set()).add(current)
    if arch == "sm_90a":
        assert found["tma_load(A"] == {"T.copy(A[by * block, k * 32], A_shared)"}
        assert found["tma_load(B"] == {"T.copy(B[k * 32, bx * block], B_shared)"}
        assert found["wgmma_ss"] == {"T.gemm(A_shared, B_shared, C_local)"}
    if arch == "sm_80":
        assert found["mma_sync"] == {"T.gemm(A_shared, B_shared, C_local)"}


@needs_tilelang
def test_every_line_of_a_statement_has_its_line() -> None:
    from warplens.frontends.tilelang.generated_source import _directives_on_each_line

    text = _directives_on_each_line('void k() {\n#line 7 "a.py"\n  a;\n  b;\n#line 9 "a.py"\n  c;\n}\nint d;\n')
    assert text.splitlines() == [
        "void k() {", '#line 7 "a.py"', "  a;", '#line 7 "a.py"', "  b;", '#line 9 "a.py"', "  c;", '#line 9 "a.py"',
        "}", "int d;",
    ]  # fmt: skip


@needs_tilelang
@pytest.mark.parametrize(
    ("again", "reason"),
    [
        ("int k;", r"TileLang keeps no lines \(TILELANG_ENABLE_IR_SPAN=0\)"),
        ('\n#line 7 "a.py"\nint other;', "TileLang lowers it to other code now"),
    ],
)
def test_code_without_python_lines_has_those_of_the_generated_source(
    again: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from warplens.frontends.tilelang import generated_source

    kernel = SimpleNamespace(
        get_kernel_source=lambda: "int k;", prim_func=SimpleNamespace(attrs={"global_symbol": "gemm"})
    )
    told: list[str] = []
    monkeypatch.setattr(generated_source, "_lowered_again", lambda kernel: again)
    monkeypatch.setattr(generated_source, "_compiled", lambda source, kernel: source)
    assert generated_source.ptx_of_kernel(kernel, told.append) == '#line 1 "gemm.cu"\nint k;'
    assert re.search(reason, told[0])


@needs_tilelang
def test_marks_that_are_statements() -> None:
    import tilelang.language as T

    import warplens.tilelang as wlt
    from tests.support.tilelang_kernels import lowered
    from warplens.frontends.tilelang.generated_source import _lowered_again

    @T.prim_func
    def main(X: T.Tensor((64,), "float16"), Y: T.Tensor((64,), "float16")):
        with T.Kernel(2, threads=64) as bx:
            wlt.begin("all of it")
            wlt.value("block 1%", bx)
            wlt.value("half", X[0])
            wlt.async_begin("copy", 3)
            with wlt.wait("full", 1, 2):
                for i in T.Parallel(64):
                    Y[i] = X[i]
            wlt.async_end("copy", bx)
            wlt.arrive("full", 2)
            wlt.instant("done")
            wlt.anchor()
            wlt.end("all of it")

    found = re.findall(r"// (@warplens [^\"]*)\"[^;]*; \}\((.*)\);", _lowered_again(lowered(main, "sm_90")))
    assert [mark for mark, _ in found] == [
        "@warplens B all%20of%20it", "@warplens V block%%201%%25 s32 %0", "@warplens V half f32 %0",
        "@warplens A copy 3", "@warplens B full", "@warplens S full wait number:1 0 - -", "@warplens E full",
        "@warplens Z copy %0", "@warplens S full arrive number:2 - - -", "@warplens I done",
        "@warplens T", "@warplens E all%20of%20it",
    ]  # fmt: skip
    assert found[1][1] == "((int)blockIdx.x)"


@needs_tilelang
def test_mistakes_in_marks_are_named() -> None:
    import warplens.tilelang as wlt

    with pytest.raises(UsageError, match="outside a TileLang kernel: it must be called in T.prim_func"):
        wlt.instant("x")
    with pytest.raises(UsageError, match="must be a string known at compile time, not 3"):
        wlt.region(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="tag 32 of 'x': allowed are 0..31"):
        wlt.async_begin("x", 32)


@needs_tilelang
def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tilelang.contrib import nvcc

    from tests.support.tilelang_kernels import gemm, lowered
    from warplens.frontends.tilelang import generated_source

    kernel = lowered(gemm(), "sm_90a")
    kernel.compile_flags, told = None, []
    kernel.get_kernel_source = lambda: "int other_code;"
    monkeypatch.setattr(nvcc, "get_nvcc_compiler", lambda: str(tmp_path / "nvcc"))
    with pytest.raises(loaded_code.Unavailable, match="TileLang does not compile it to PTX: .*nvcc"):
        generated_source.ptx_of_kernel(kernel, told.append)
    assert "its lines are those of the source that TileLang generated" in told[0]


@needs_tilelang
@pytest.mark.slow  # TileLang and nvcc compile each kernel twice
@pytest.mark.parametrize(
    ("when", "marks", "fired"),
    [("inside", "auto", [True, True, False]), ("before", "hand", [False, True, True, False])],
)
def test_tilelang_itself_launches_woven_kernels(when: str, marks: str, fired: list[bool], tmp_path: Path) -> None:
    """Its library is real; only the driver is not, and the interpreter runs the kernels."""
    told = run_scenario(
        "launches", when, marks, module="tilelang_scenarios", LD_PRELOAD=str(libraries() / "cudart.so"),
        TILELANG_CACHE_DIR=str(tmp_path), TILELANG_PRINT_ON_COMPILATION="0",
    )  # fmt: skip
    assert told["right"]
    assert told["fired"] == fired
    assert told["seen"] == {"main_kernel": 2}
    assert told["notes"] == {}
    lines = [region for region in told["regions"] if "tilelang_scenarios.py" in region]
    assert "compute" in told["regions"]
    assert bool(lines) == (marks == "auto")
