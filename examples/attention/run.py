"""Run one attention implementation, plain, profiled by warplens or under another profiler. Needs a GPU and torch.

python examples/attention/run.py --impl flash --seq-len 512 --check           # time it and check it
python examples/attention/run.py --impl flash -o flash.warplens               # profile it
warplens run --torch examples/attention/run.py --impl flash                   # with PyTorch's operators
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from implementations import ELEMENTS, HEAD_SIZES, IMPLEMENTATIONS, float64, flops, random_inputs

import warplens as wl


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--impl", choices=IMPLEMENTATIONS, default="flash")
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--head-dim", type=int, choices=HEAD_SIZES, default=64)
    parser.add_argument("--dtype", choices=ELEMENTS, default="fp16")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("-n", "--launches", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="compare with float64; exit 1 at an error of 0.05 or more")
    parser.add_argument("-o", "--output", help="profile the last launch into this .warplens file")
    options = parser.parse_args()
    if min(options.seq_len, options.batch, options.heads, options.launches) < 1:
        parser.error("--seq-len, --batch, --heads and --launches must be at least 1")

    import torch

    if not torch.cuda.is_available():
        sys.exit("this example needs a GPU")
    attention = IMPLEMENTATIONS[options.impl]
    sizes = (options.batch, options.heads, options.seq_len, options.head_dim)
    inputs = random_inputs(*sizes, options.dtype)
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(options.launches):
        start.record()
        out = attention(*inputs, options.causal)
        stop.record()
    torch.cuda.synchronize()
    ms = start.elapsed_time(stop)
    rate = flops(*sizes, options.causal) / ms / 1e9
    print(f"{options.impl}: {ms:.3f} ms, {rate:.1f} TFLOP/s")
    apart = 0.0
    if options.check:
        expected = float64(*inputs, options.causal)
        apart = float((out - expected).norm() / expected.norm())
        print(f"relative error {apart:.1e}")
    if options.output:
        with wl.profile(options.output):
            attention(*inputs, options.causal)
        print(f"next: warplens stats {options.output}    warplens report {options.output}")
    return 0 if apart < 0.05 else 1


if __name__ == "__main__":
    sys.exit(main())
