"""Record the examples' pipelined matmul on a GPU as a small raw capture.

PYTHONPATH=src python tests/golden/make_triton_capture.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from warplens.profiling.profile import Profile
from warplens.record.capture import Capture, write_capture

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "triton"))

import matmul


def main(folder: str) -> None:
    m, n, k = 512, 512, 512
    a = torch.randn(m, k, device="cuda", dtype=torch.float16)
    b = torch.randn(k, n, device="cuda", dtype=torch.float16)
    c = torch.empty(m, n, device="cuda", dtype=torch.float16)
    launches = []

    class Keep(Profile):
        """A profile that keeps the raw launches it is about to decode."""

        def add(self, pending):  # type: ignore[no-untyped-def]
            launches.append(pending)
            super().add(pending)

    with Keep() as profile:
        for _ in range(2):
            matmul.matmul[(m // 128, n // 128)](a, b, c, m, n, k, 128, 128, 64, num_warps=4, num_stages=3)
    torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)
    capture = Capture([launch.collect() for launch in launches], device=profile.device)
    path = write_capture(capture, Path(folder) / "triton_matmul.wlcap")
    print(path, path.stat().st_size, "bytes", len(profile.trace), "rows")


if __name__ == "__main__":
    main(sys.argv[1])
