"""Regenerate the NVRTC samples: `python -m tests.golden.ptx.make_nvrtc` where pip installed NVRTC 12 and 13."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.cuda_compilers import compile_with_nvrtc, nvrtc_libraries

HERE = Path(__file__).parent
ARCHES = {"12": "compute_90", "13": "compute_100a"}


def main():
    # NVRTC has no <math.h>, and without the headers of the half types the sample needs no toolkit.
    options = ["-DSMALL", "-DINFINITY=__int_as_float(0x7f800000)"]
    for name, library in sorted(nvrtc_libraries().items()):
        major = name[-2:]
        log, ptx = compile_with_nvrtc(library, ARCHES[major], options, (HERE / "kernels.cu").read_text(), "PTX")
        if not ptx:
            raise SystemExit(log)
        text = ptx.rstrip(b"\0").decode()
        if major == "13":
            # Nothing in it needs the newest PTX, and ptxas of CUDA 13.0 refuses what is newer than itself.
            text = re.sub(r"^\.version .*$", ".version 9.0", text, flags=re.M)
        (HERE / f"nvrtc{major}_kernels.ptx").write_text(text)


if __name__ == "__main__":
    main()
