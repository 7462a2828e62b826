"""Which PTX the driver's linker assembles as a compiler that sees the whole program would."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from warplens.driver.jit_linker import keeps_its_meaning
from warplens.driver.libcuda import Driver
from warplens.launch.assembled_code import assembled

HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"
DYNAMIC = "{head}.extern .shared .align {align} .b8 tiles[];\n{entry}"
ENTRY = """.visible .entry k(.param .u64 p)
{
	.shared .align 8 .b8 barrier[48];
	.reg .b32 %r<4>; .reg .b64 %rd<2>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, tiles; mov.u32 %r2, barrier;
	st.shared.u32 [%r2], %r1;
	ld.shared.u32 %r3, [%r1];
	st.global.u32 [%rd1], %r3;
	ret;
}
"""


def text(align: int, entry: str = ENTRY) -> str:
    return DYNAMIC.format(head=HEADER, align=align, entry=entry)


@pytest.mark.parametrize(
    ("ptx", "same"),
    [
        (text(16), True),
        (text(32), False),
        (text(1024), False),
        (text(16).replace("\tret;", "\tsetmaxnreg.dec.sync.aligned.u32 40;\n\tret;"), False),
        (text(16) + ".func (.param .b32 r) helper()\n{\n\tret;\n}\n", False),
        (text(16) + ".visible .func helper()\n{\n\tret;\n}\n", False),
        (text(16).replace("barrier", "function"), True),
    ],
)
def test_what_the_linker_would_change_is_left_to_the_loader(ptx: str, same: bool) -> None:
    assert keeps_its_meaning(ptx) == same
    if not same:
        assert assembled(Driver.__new__(Driver), ptx) == ptx.encode() + b"\0"


@pytest.mark.skipif(not (shutil.which("ptxas") and shutil.which("nvlink")), reason="needs ptxas and nvlink")
@pytest.mark.parametrize("align", [16, 1024])
def test_the_toolkits_linker_moves_dynamic_memory_that_is_aligned_further(align: int, tmp_path: Path) -> None:
    """The size of the static memory is where the dynamic one begins."""
    (tmp_path / "k.ptx").write_text(text(align))
    whole, linked = tmp_path / "whole.cubin", tmp_path / "linked.cubin"
    for command in (
        ["ptxas", "-arch=sm_90a", "-o", whole, tmp_path / "k.ptx"],
        ["ptxas", "-arch=sm_90a", "-c", "-o", tmp_path / "k.o", tmp_path / "k.ptx"],
        ["nvlink", "-arch=sm_90a", "-o", linked, tmp_path / "k.o"],
    ):
        subprocess.run(command, check=True, capture_output=True)
    assert (_alignment(whole) == _alignment(linked)) == keeps_its_meaning(text(align))


def _alignment(cubin: Path) -> int:
    """The alignment of a cubin's shared memory, in its section header."""
    data = cubin.read_bytes()
    at, (size, count, names) = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<3H", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, at + size * number) for number in range(count)]
    start = headers[names][4]
    found = [one[8] for one in headers if data[start + one[0] :].startswith(b".nv.shared.k\0")]
    return int(found[0])
