"""What is carried to a machine without a library: differences, the script in the place of a compiler, launches."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from benchmarks.lib import recorded_tileiras
from benchmarks.lib.carried_kernels import CarriedKernel, carried, read, write
from benchmarks.lib.library_difference import put_back
from benchmarks.lib.stub_driver import SeenLaunch
from warplens.frontends.cutile.shadow_toolkit import TileModule

PTXAS = """#!/bin/sh
while [ "$1" != -o ]; do last="$1"; shift; done
{ cat "$last"; for word in "$@"; do case "$word" in --nv-host=*) cat "${word#*=}";; esac; done; } > "$2"
"""


def test_a_library_is_made_from_its_difference(tmp_path: Path) -> None:
    base, library = tmp_path / "base.so", tmp_path / "library.so"
    base.write_bytes(b"abcdefgh")
    back = np.array([-(1 << 63) + 6], np.int64).tobytes()  # 6 back, as a sign and an absolute value
    steps = np.array([6, 2, 0], np.int64).tobytes()[:16] + back + np.array([3, 0, 0], np.int64).tobytes()
    for name, content in (
        ("control", steps),
        ("difference", bytes([1, 0, 0, 0, 0, 0, 0, 255, 0])),
        ("additional", b"XY"),
    ):
        (tmp_path / f"library.so.{name}").write_bytes(content)
    put_back(library, base)
    assert library.read_bytes() == b"bbcdefXYaac"


def test_the_script_repeats_what_the_compiler_gave_to_ptxas(tmp_path: Path) -> None:
    tools = tmp_path / recorded_tileiras.TOOLS
    tools.mkdir(parents=True)
    for name in ("lib", "nvvm"):
        (tools.parent / name).mkdir()
    for name, text in (("tileiras", "#!/bin/sh\necho said $1\n"), ("ptxas", PTXAS)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    arguments = ("-arch", "sm_90a", "/tmp/gone.ptx", "-o", "/tmp/gone.bin", "--nv-host=/tmp/gone.o", "-uumn")
    modules = {
        name: TileModule(f"text of {name}\n", "ptxas", arguments, b"host code\n") for name in ("one_K1", "two_K1")
    }
    recorded_tileiras.replace(tmp_path, modules)

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(tools / "tileiras"), *map(str, words)], capture_output=True, text=True)

    assert run("--version").stdout == "said --version\n"
    bytecode, output = tmp_path / "x.bytecode", tmp_path / "out.cubin"
    bytecode.write_bytes(b"\0\1two_K1\0\xff")
    assert run(bytecode, "-o", output, "--gpu-name", "sm_90").returncode == 0
    assert output.read_text() == "text of two_K1\nhost code\n"
    bytecode.write_bytes(b"\0three_K1\0")
    assert "none of the recorded kernels" in run(bytecode, "-o", output).stderr
    (tmp_path / "probe1.bytecode").touch()
    assert run(tmp_path / "probe1.bytecode", "-o", output).returncode == 0


def test_the_addresses_of_a_launch_are_found_and_kept(tmp_path: Path) -> None:
    bases = [1 << 36, 2 << 36]
    structure = bases[1].to_bytes(8, "little") + bytes(8)
    seen = SeenLaunch("k", (2, 1, 1), (64, 1, 1), 16, (b"\1\0\0\0", structure, bases[0].to_bytes(8, "little")))
    kernel = carried("example.k", seen, "text", [4, 8], bases)
    assert kernel.pointers == ((1, 0, 1), (2, 0, 0))
    write(tmp_path / "kernels.json", "1.2", [kernel])
    version, [same] = read(tmp_path / "kernels.json")
    assert version == "1.2"
    assert isinstance(same, CarriedKernel)
    assert tuple(map(tuple, same.pointers)) == kernel.pointers
    assert bytes.fromhex(same.arguments[1]) == structure
