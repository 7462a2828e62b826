"""Pack TileLang and cuTile for a machine without a network, in less than 64 MiB each, for `benchmarks.reach run`.

    PYTHONPATH=src python -m benchmarks.tile_kits [tilelang] [cutile] [--python 3.12]

Writes build/tile/NAME.tar.xz, with only what compiling and launching kernels for NVIDIA GPUs needs. `build/` is ignored
by git; `benchmarks.reach run tilelang cutile` unpacks what it finds there.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from benchmarks.lib.reach_tile import KITS

_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64", "manylinux_2_17_x86_64")
REQUIREMENTS = {
    "tilelang": (
        "tilelang==0.1.15", "apache-tvm-ffi==0.1.12", "cloudpickle==3.1.2", "ml-dtypes==0.6.0", "tqdm==4.70.1",
        "z3-solver==4.15.4.0", "psutil==7.2.2",
    ),
    "cutile": (
        "cuda-tile==1.7.0", "nvidia-cuda-tileiras==13.4.92", "nvidia-cuda-nvcc==13.4.92", "nvidia-nvvm==13.4.92",
    ),
}  # fmt: skip
_LEFT_OUT = {
    "tilelang": r"/(ascend|rocm|metal|webgpu|carver)/.*\.(h|hpp|cpp|cc)$|composable_kernel|/pto-isa/|/tests?/|\.pyi$"
    r"|^z3/include|^bin/|^tvm_ffi/share/",
    "cutile": r"/bin/(?!ptxas$|tileiras$)|/nvvm/bin/|/include/|\.a$",
}
"""Files that the cases do not need."""
_LEVEL = {"tilelang": 1, "cutile": 6}
"""How hard to compress, to stay below 64 MiB."""


def pack(name: str, python: str) -> Path:
    """Download the wheels of a library, and pack their files."""
    made = KITS / f"{name}.tar.xz"
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        wheels, files = Path(folder) / "wheels", Path(folder) / "files"
        platforms = [word for platform in _PLATFORMS for word in ("--platform", platform)]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *platforms]
        subprocess.run([*command, "--python-version", python, "-d", wheels, *REQUIREMENTS[name]], check=True)
        for wheel in sorted(wheels.iterdir()):
            with zipfile.ZipFile(wheel) as archive:
                for member in archive.infolist():
                    if not re.search(_LEFT_OUT[name], member.filename):
                        path = Path(archive.extract(member, files))
                        path.chmod((member.external_attr >> 16) & 0o777 or 0o644) if path.is_file() else None
        for copy in files.glob("z3/lib/libz3.so.*"):  # the same library under a second name
            copy.unlink()
            copy.symlink_to("libz3.so")
        subprocess.run(["tar", "-C", files, "-I", f"xz -{_LEVEL[name]}", "-cf", made.resolve(), "."], check=True)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"which to pack [default: {' '.join(REQUIREMENTS)}]")
    parser.add_argument("--python", default="3.12", help="the Python there [default: 3.12]")
    given = parser.parse_args()
    for name in given.names or REQUIREMENTS:
        made = pack(name, given.python)
        print(f"{made}: {made.stat().st_size / (1 << 20):.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
