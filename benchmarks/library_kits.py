"""Pack libraries for a machine without a network, for `benchmarks.reach run`.

    PYTHONPATH=src python -m benchmarks.library_kits [NAME ...] [--python PYTHON]

Writes build/kits/NAME.tar.xz, with only what compiling and launching kernels for NVIDIA GPUs needs, and
warp_launches.json; git ignores `build/`. `benchmarks.reach run` unpacks what it finds there. PYTHON must be of the
version of the machine that the kits are for, and have numpy and torch.

The kit of `cute` needs bsdiff4 in this Python, and benchmarks.lib.library_difference makes its runtime there.
`cutile_recorded` is cuTile with a script in the place of its compiler, which repeats what that gave for the kernels of
the case. `warp_launches` is no library: it has launches of Warp's examples as PTX.
"""

from __future__ import annotations

import argparse
import os
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.lib.library_difference import take_out
from benchmarks.lib.reach_tile import KITS

ROOT = Path(__file__).resolve().parent.parent
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64", "manylinux_2_17_x86_64")
_CUTILE = (
    "cuda-tile==1.7.0", "nvidia-cuda-tileiras==13.4.92", "nvidia-cuda-nvcc==13.4.92", "nvidia-nvvm==13.4.92",
)  # fmt: skip
REQUIREMENTS = {
    "tilelang": (
        "tilelang==0.1.15", "apache-tvm-ffi==0.1.12", "cloudpickle==3.1.2", "ml-dtypes==0.6.0", "tqdm==4.70.1",
        "z3-solver==4.15.4.0", "psutil==7.2.2",
    ),
    "cutile": _CUTILE,
    "cutile_recorded": _CUTILE,
    "warp": ("warp-lang==1.19.0",),
    "warp_launches": ("warp-lang==1.19.0",),
    "cute": (
        "nvidia-cutlass-dsl==4.8.1", *(f"nvidia-cutlass-dsl-libs-{part}==4.8.1" for part in ("base", "core", "cu13")),
        "apache-tvm-ffi==0.1.12",
    ),
}  # fmt: skip
_LEFT_OUT = {
    "tilelang": r"/(ascend|rocm|metal|webgpu|carver)/.*\.(h|hpp|cpp|cc)$|composable_kernel|/pto-isa/|/tests?/|\.pyi$"
    r"|^z3/include|^bin/|^tvm_ffi/share/|\.data/",
    "cutile": r"/bin/(?!ptxas$|tileiras$)|/nvvm/bin/|/include/|\.a$",
    "warp": r"warp-clang|/tests/|/examples/(assets|benchmarks|browse|distributed|fem|interop|optim)|\.pyi$",
    "cute": r"\.pyi$|\.a$|^tvm_ffi/(share|include)/",
}
"""Files that the cases do not need."""
CUTE_LIBRARIES = (
    "nvidia_cutlass_dsl/dsl_packages/cutlass/_mlir/_mlir_libs/_cutlass_ir.cu13.cpython-312-x86_64-linux-gnu.so",
    "nvidia_cutlass_dsl/cu13/lib/libcute_dsl_runtime.so",
)
"""The second is packed as what differs from the first."""
_FAT_BINARY = b"\x50\xed\x55\xba"
_FAT_HEADER, _FAT_ENTRY, _FAT_ARCH = struct.Struct("<4sHHQ"), struct.Struct("<HHIQ"), struct.Struct("<I")
_PTX, _MACHINE_CODE = 1, 2


def pack(name: str, python: str) -> Path:
    """Download the wheels of a library, and pack their files."""
    made = KITS / f"{name}.{'json' if name == 'warp_launches' else 'tar.xz'}"
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        wheels, files = Path(folder) / "wheels", Path(folder) / "files"
        version = _said(python, "import sys; print('%d.%d' % sys.version_info[:2])")
        platforms = [word for platform in _PLATFORMS for word in ("--platform", platform)]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *platforms]
        subprocess.run([*command, "--python-version", version, "-d", wheels, *REQUIREMENTS[name]], check=True)
        for wheel in sorted(wheels.iterdir()):
            _extract(wheel, files, _LEFT_OUT.get(name.partition("_")[0], "$^"))
        for library in files.rglob("*.so*"):
            subprocess.run(["strip", "--strip-all", library], check=False, stderr=subprocess.DEVNULL)
        if name in _STEPS:
            _STEPS[name](files, made, python)
        if made.suffix == ".xz":
            xz = "xz --x86 --lzma2=preset=9e,dict=256MiB"  # with jumps as addresses, machine code packs better
            subprocess.run(["tar", "-C", files, "--sort=name", "-I", xz, "-cf", made.resolve(), "."], check=True)
    return made


def _extract(wheel: Path, files: Path, left_out: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if not re.search(left_out, member.filename):
                path = Path(archive.extract(member, files))
                path.chmod((member.external_attr >> 16) & 0o777 or 0o644) if path.is_file() else None


def _one_z3(files: Path, made: Path, python: str) -> None:
    """The wheel has the same library under a second name."""
    for copy in files.glob("z3/lib/libz3.so.*"):
        copy.unlink()
        copy.symlink_to("libz3.so")


def _hopper_alone(files: Path, made: Path, python: str) -> None:
    """Empty the machine code and PTX of Warp's own kernels for other GPUs, where they are."""
    path = files / "warp/bin/warp.so"
    code, at = bytearray(path.read_bytes()), 0
    while (at := code.find(_FAT_BINARY, at)) >= 0:
        _, _, header, size = _FAT_HEADER.unpack_from(code, at)
        entry, end = at + header, at + header + size
        if header != _FAT_HEADER.size or end > len(code):  # no fat binary
            at += len(_FAT_BINARY)
            continue
        while entry < end:
            kind, _, header, size = _FAT_ENTRY.unpack_from(code, entry)
            if kind in (_PTX, _MACHINE_CODE) and _FAT_ARCH.unpack_from(code, entry + 28)[0] != 90:
                code[entry + header : entry + header + size] = bytes(size)
            entry += header + size
        at = end
    path.write_bytes(code)


def _recorded(files: Path, made: Path, python: str) -> None:
    from benchmarks.lib.recorded_tileiras import TOOLS

    (files / TOOLS / "tileiras").chmod(0o755)
    _without_gpu(
        python, files,
        "from benchmarks.lib import reach_cutile, recorded_tileiras",
        f"recorded_tileiras.replace(Path({str(files)!r}), reach_cutile.recorded())",
    )  # fmt: skip


def _smaller_runtime(files: Path, made: Path, python: str) -> None:
    base, library = (files / path for path in CUTE_LIBRARIES)
    take_out(library, base)


def _launches(files: Path, made: Path, python: str) -> None:
    _without_gpu(
        python, files,
        "from benchmarks.lib import carried_kernels, reach_warp",
        f"carried_kernels.write(Path({str(made.resolve())!r}), reach_warp.wp.__version__, reach_warp.launches())",
    )  # fmt: skip


def _without_gpu(python: str, files: Path, *lines: str) -> None:
    """Run statements with a library on the path, on the driver that runs nothing."""
    from tests.support.cpp_launches import libraries

    path = os.pathsep.join([str(files), str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries()), "PYTHONPATH": path}
    with tempfile.TemporaryDirectory() as cache:  # cuTile finds no machine code of another time
        environment |= {"HOME": cache, "XDG_CACHE_HOME": cache}
        code = "\n".join(["from pathlib import Path", *lines])
        subprocess.run([python, "-c", code], env=environment, cwd=ROOT, check=True)


_STEPS: dict[str, Callable[[Path, Path, str], None]] = {
    "tilelang": _one_z3, "warp": _hopper_alone, "cutile_recorded": _recorded, "warp_launches": _launches,
    "cute": _smaller_runtime,
}  # fmt: skip
"""What is done to the files of a library before they are packed."""


def _said(python: str, code: str) -> str:
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"which to pack [default: {' '.join(REQUIREMENTS)}]")
    parser.add_argument("--python", default=sys.executable, help="a Python of the version there [default: this one]")
    given = parser.parse_args()
    for name in given.names or REQUIREMENTS:
        made = pack(name, given.python)
        print(f"{made}: {made.stat().st_size / (1 << 20):.1f} MiB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
