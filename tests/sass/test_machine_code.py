"""Machine code that is whole, stripped, foreign or damaged, and machines without tools: always one clear line."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.sass_kernels import HOISTED, code_of, needs_tools
from warplens.sass.cubin_file import SassError, read_cubin_file
from warplens.sass.cuda_tools import find_tool
from warplens.sass.machine_code import AS_RUN, MachineCode, verify_code
from warplens.weave.weaver import weave


def problem_of(code: MachineCode) -> str:
    found = verify_code(code)
    assert found.regions == ()
    assert "\n" not in found.problem
    return found.problem


def stripped(tmp_path: Path, *, optimise: str = "-O3") -> bytes:
    """The kernel without a line table: its PTX has no `.loc`, and nobody asks for one."""
    (tmp_path / "k.ptx").write_text(weave(HOISTED).text)
    command = [find_tool("ptxas"), optimise, "-arch=sm_90", "k.ptx", "-o", "k.cubin"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    return (tmp_path / "k.cubin").read_bytes()


@needs_tools
def test_code_that_ran_is_verified_as_it_is() -> None:
    found = verify_code(code_of(HOISTED), "the kernel")
    assert (found.kernel, found.source, found.problem) == ("the kernel", AS_RUN, "")
    assert found["load"].flag


@needs_tools
def test_a_stripped_line_table_comes_back_by_an_identical_assembly(tmp_path: Path) -> None:
    code = replace(code_of(HOISTED), cubin=stripped(tmp_path))
    assert not read_cubin_file(code.cubin or b"").has_lines
    found = verify_code(code)
    assert "second, identical assembly" in found.source
    assert found["load"].flag == verify_code(code_of(HOISTED))["load"].flag


@needs_tools
def test_a_stripped_cubin_of_other_code_is_not_verified_by_a_guess(tmp_path: Path) -> None:
    code = replace(code_of(HOISTED), cubin=stripped(tmp_path, optimise="-O1"))
    reason = "its cubin has no line table, and assembling its PTX again gives other machine code"
    assert problem_of(code) == f"{reason}; compile it with line information"


@needs_tools
def test_code_that_the_driver_assembled_says_that_another_assembler_was_read() -> None:
    found = verify_code(replace(code_of(HOISTED), cubin=None))
    assert re.fullmatch(r"ptxas [\d.]+ on the same PTX, not the assembler that made the code that ran", found.source)
    assert found["load"].flag


@needs_tools
def test_what_is_no_code_of_the_kernel_gives_one_line() -> None:
    code = code_of(HOISTED)
    assert code.cubin is not None
    assert problem_of(replace(code, cubin=b"junk")).startswith("this is no cubin")
    assert problem_of(replace(code, cubin=code.cubin[:5000])).startswith("this cubin is damaged")
    assert problem_of(replace(code, symbol="other")) == "the cubin has no kernel other; it has k"
    assert problem_of(replace(code, ptx="", cubin=None)) == "its machine code was not kept"
    assert problem_of(MachineCode("k", missing="gone")) == "gone"
    other = "its PTX is not the text that its machine code was assembled from"
    assert problem_of(replace(code, ptx="nonsense {")) == other
    assert problem_of(replace(code, ptx="\n" + code.ptx)) == other
    assert problem_of(replace(code, ptx="")).startswith("no marks were found in its PTX, which")
    assert "ptxas cannot assemble" in problem_of(replace(code, cubin=None, ptx=code.ptx.replace("ld.param", "ld.oops")))


def test_an_elf_file_for_another_machine_is_refused() -> None:
    host = Path("/bin/sh").read_bytes()
    with pytest.raises(SassError, match="for another machine"):
        read_cubin_file(host)


@needs_tools
def test_every_truncation_and_many_damages_stay_one_line() -> None:
    cubin = code_of(HOISTED).cubin or b""
    table = int.from_bytes(cubin[40:48], "little")
    for size in range(0, table, max(table // 50, 1)):
        with pytest.raises(SassError):
            read_cubin_file(cubin[:size])
    for at in (40, 47, 58, 60, 62, len(cubin) - 40):
        broken = bytearray(cubin)
        broken[at] ^= 0xFF
        found = verify_code(MachineCode("k", "", bytes(broken)))
        assert found.problem
        assert "\n" not in found.problem


def test_without_tools_a_line_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPLENS_NVDISASM", "/nowhere/nvdisasm")
    monkeypatch.setenv("WARPLENS_PTXAS", "/nowhere/ptxas")
    for name in ("nvdisasm", "ptxas"):
        with pytest.raises(SassError, match=f"{name} was not found: install the CUDA toolkit"):
            find_tool(name)
    text = weave(HOISTED).text
    assert problem_of(MachineCode("k", text)).startswith("ptxas was not found")


@needs_tools
def test_without_nvdisasm_a_cubin_gives_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    code = code_of(HOISTED)
    monkeypatch.setenv("WARPLENS_NVDISASM", "/nowhere/nvdisasm")
    assert problem_of(code).startswith("nvdisasm was not found")


def test_the_digest_tells_codes_apart() -> None:
    one = MachineCode("k", "text", b"code")
    assert one.digest == MachineCode("k", "text", b"code", names={"#1": "a"}).digest
    others = [replace(one, **changed) for changed in ({"symbol": "j"}, {"ptx": "x"}, {"cubin": b"x"}, {"cubin": None})]
    assert one.digest not in {other.digest for other in others}
