"""cuTile: what its compiler hands to ptxas, and launches whose code says how many threads a block has."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.cpp_launches import run_scenario
from warplens.auto.ptx import mark_ptx
from warplens.auto.rules import Auto
from warplens.errors import WarplensError
from warplens.frontends.cutile import frontend
from warplens.frontends.cutile.shadow_toolkit import ShadowToolkit
from warplens.frontends.cutile.with_blocks import with_source_regions
from warplens.profiling.profile import Profile


def is_installed() -> bool:
    try:
        return importlib.util.find_spec("cuda.tile") is not None
    except ImportError:
        return False


needs_cutile = pytest.mark.skipif(not is_installed(), reason="needs cuda-tile")
PTXAS = """#!/bin/sh
while [ "$1" != -o ]; do last="$1"; shift; done
grep -q refuse "$last" && { echo "ptxas fatal: refused" >&2; exit 1; }
{ cat "$last"; echo "$@"; for word in "$@"; do case "$word" in --nv-host=*) cat "${word#*=}";; esac; done; } > "$2"
"""
TILEIRAS = """#!/bin/sh
here=$(dirname "$0")
test -e "$here/../lib/libnvvm.so.4" || { echo "no libnvvm" >&2; exit 5; }
echo host code > "$1.o"
exec "$here/ptxas" -arch sm_90a "$1" -o "$2" "--nv-host=$1.o" -uumn
"""


@pytest.fixture(name="toolkit")
def _toolkit(tmp_path: Path) -> ShadowToolkit:
    """The folder of a compiler like cuTile's, with its shadow."""
    tools = tmp_path / "real" / "bin"
    tools.mkdir(parents=True)
    for name, text in (("tileiras", TILEIRAS), ("ptxas", PTXAS)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (tmp_path / "real" / "lib").mkdir()
    (tmp_path / "real" / "lib" / "libnvvm.so.4").touch()
    return ShadowToolkit(str(tools / "tileiras"), "")


def compiled(toolkit: ShadowToolkit, folder: Path, text: str) -> bytes:
    (folder / "module.ptx").write_text(text)
    subprocess.run([toolkit.tileiras, folder / "module.ptx", folder / "out.cubin"], check=True)
    return (folder / "out.cubin").read_bytes()


def test_what_the_compiler_hands_to_ptxas_is_kept(toolkit: ShadowToolkit, tmp_path: Path) -> None:
    machine_code = compiled(toolkit, tmp_path, ".version 9.4\n")
    assert machine_code.startswith(b".version 9.4"), "the real ptxas has run"
    module = toolkit.latest()
    assert module.ptx == ".version 9.4\n"
    assert module.host_code == b"host code\n"
    (tmp_path / "module.ptx.o").unlink()
    woven = module.assemble("// woven\n").decode()
    assert woven.startswith("// woven\n"), "the input is replaced, and so is the output"
    assert "-uumn" in woven, "all other options stay"
    assert woven.endswith("host code\n"), "the driver runs this code at each launch"


def test_ptx_that_does_not_assemble_is_named(toolkit: ShadowToolkit, tmp_path: Path) -> None:
    compiled(toolkit, tmp_path, ".version 9.4\n")
    module = toolkit.latest()
    with pytest.raises(WarplensError, match="ptxas fatal: refused"):
        module.assemble("// refuse\n")
    os.unlink(module.ptxas)
    with pytest.raises(WarplensError, match=r"real/bin/ptxas is not there"):
        module.assemble("// woven\n")


def test_a_compiler_without_ptxas_is_named(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tileiras").touch()
    with pytest.raises(WarplensError, match="there is no ptxas next to"):
        ShadowToolkit(str(tmp_path / "bin" / "tileiras"), "")


def test_lines_inside_inline_assembly_are_those_of_the_statement() -> None:
    text = "\t.loc 1 17 4\n// begin inline asm\n{\n\t.loc 1 19 4\nmma;\n}\n// end inline asm\n\t.loc 1 18 4\nret;\n"
    assert frontend._with_plain_lines(text).count(".loc") == 2
    assert ".loc 1 19" not in frontend._with_plain_lines(text)


SOURCE = """\
import warplens.cutile as wlt
from warplens.cutile import region as part
from elsewhere import region

def kernel(x):
    with wlt.region("outer"), open("x"):
        with part(name="inner"):
            a = 1
        b = (2 +
             3)
    with region("other"):
        c = 4
    with wlt.region("lost"):
        d = 5
    with wlt.region(name):
        d = 5

def helper(x):
    with part("unused"):
        e = 6
"""


def test_the_lines_of_a_region_are_those_of_its_block(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(SOURCE)
    code = "".join(f"\t.loc 1 {line} 0\n\tld.global.u32 %r1, [%rd1];\n" for line in (5, 8, 10, 12))
    text = f'''.version 8.0
.target sm_90
.address_size 64
.file 1 "{tmp_path / "k.py"}"
.file 2 "./of the compiler"
.visible .entry kernel_K1(.param .u64 p)
{{
	.reg .b32 %r<2>; .reg .b64 %rd<2>;
{code}	ret;
}}
'''
    marked, remarks = with_source_regions(text, "kernel")
    found = re.findall(r"@warplens (.*)|loc 1 (\d+)", marked)
    assert [mark or int(line) for mark, line in found] == [5, 8, "B outer", "B inner", 10, "E inner", 12, "E outer"]
    assert [remark.partition(" is not recorded: ")[2] for remark in remarks] == [
        "no code of the kernel is left of these lines", "its name must be written as a string"
    ]  # fmt: skip
    assert "region 'lost'" in remarks[0]
    assert mark_ptx(marked, Auto(("loads",))).sites, "automatic marks stand beside them"


def test_other_versions_and_machines_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def note(install: Any, reason: str = "") -> str:
        monkeypatch.setattr(frontend, "why_not", lambda: reason)
        monkeypatch.setattr(frontend, "install", lambda running: install())
        profile = Profile(auto="all")
        assert frontend.start(profile) is None
        return profile.notes["cuda.tile"][0]

    def unknown() -> None:
        raise ImportError("cannot import name 'compile_tile'")

    assert note(list, "no C compiler found") == "its kernels run unmarked: no C compiler found"
    assert "warplens does not know this version of it (cannot import name 'compile_tile')" in note(unknown)
    assert frontend.start(Profile()) is None, "it has no marks of its own"


@needs_cutile
@pytest.mark.slow  # cuTile compiles its kernel twice, and ptxas assembles each way to weave it
@pytest.mark.parametrize(("when", "fired"), [("inside", [True, True, False]), ("before", [False, True, True, False])])
def test_cutile_itself_launches_woven_kernels(when: str, fired: list[bool]) -> None:
    """Its library and compiler are real; only the driver is not, and the interpreter runs the kernels."""
    told = run_scenario("launches", when, module="cutile_scenarios")
    assert told["right"]
    assert told["fired"] == fired
    assert told["seen"] == {"axpy": 2}
    assert told["notes"] == {}
    assert told["tracks"] == 2 * 4 * 4, "4 blocks of 128 threads, though the launcher says 1 thread"
    assert {"load issue cutile_scenarios.py:28", "store cutile_scenarios.py:30"} <= set(told["regions"])
    assert not [region for region in told["regions"] if "_stub.py" in region]


@needs_cutile
@pytest.mark.slow  # as above
def test_regions_of_the_program_are_recorded_without_automatic_marks() -> None:
    told = run_scenario("launches", "regions", module="cutile_scenarios")
    assert told["right"]
    assert told["fired"] == [True, True, False]
    assert set(told["regions"]) == {"load", "load y"}
    lost, unnamed = told["notes"]["axpy_regions"]
    assert lost.startswith("the region 'nothing'")
    assert unnamed.endswith("its name must be written as a string")
