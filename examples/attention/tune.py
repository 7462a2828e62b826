"""Find the fastest tile sizes of the Triton kernel: `python examples/attention/tune.py`. Needs a GPU and torch.

Compiles every candidate in parallel, checks each against SDPA, times it with `triton.testing.do_bench` and prints a
table. Copy the fastest per head size and causality to triton_flash.CONFIGS.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from triton_flash import CONFIGS, Config, run

CANDIDATES = {
    64: [
        Config(128, 128, 8, 2), Config(128, 128, 8, 3), Config(128, 64, 8, 3), Config(128, 64, 4, 3),
        Config(128, 128, 4, 2), Config(128, 32, 4, 4), Config(64, 128, 4, 3), Config(64, 64, 4, 3),
        Config(64, 64, 4, 4), Config(256, 64, 8, 3), Config(256, 128, 8, 2), Config(256, 32, 8, 4),
    ],
    128: [
        Config(128, 128, 8, 2), Config(128, 128, 8, 3), Config(128, 64, 8, 2), Config(128, 64, 8, 3),
        Config(128, 64, 8, 4), Config(128, 64, 4, 2), Config(128, 64, 4, 3), Config(64, 128, 4, 2),
        Config(64, 64, 4, 2), Config(64, 64, 4, 3), Config(256, 64, 8, 2), Config(256, 64, 8, 3),
    ],
}  # fmt: skip
DTYPE = "float16"


def tensors(head: int, length: int, batch: int, heads: int) -> tuple[Any, ...]:
    import torch

    made = (torch.randn(batch, heads, length, head, device="cuda", dtype=getattr(torch, DTYPE)) for _ in range(3))
    q, k, v = made
    return q, k, v, torch.full_like(q, float("nan"))


def compile_one(job: tuple[int, bool, Config]) -> str:
    """Fill Triton's cache in a separate process; return the reason if a candidate does not fit."""
    head, causal, config = job
    try:
        run(*tensors(head, 512, 1, 1), causal=causal, config=config)
    except Exception as error:  # a failing candidate must not stop the others
        return f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
    return ""


def tflops(head: int, length: int, pairs: int, causal: bool, ms: float) -> float:
    return 4 * pairs * length * length * head * (0.5 if causal else 1) / ms / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seq-len", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    import torch
    from triton.testing import do_bench

    if not torch.cuda.is_available():
        sys.exit("this example needs a GPU")
    jobs = [(head, causal, one) for head, causal in product((64, 128), (False, True)) for one in CANDIDATES[head]]
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        problems = dict(zip(jobs, pool.map(compile_one, jobs, chunksize=1), strict=True))
    found: list[dict[str, Any]] = []
    for head, causal in CONFIGS:
        q, k, v, out = tensors(head, options.seq_len, options.batch, options.heads)
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        for config in CANDIDATES[head]:
            row = {"head": head, "causal": causal, **vars(config), "problem": problems[head, causal, config]}
            if not row["problem"]:
                run(q, k, v, out.fill_(float("nan")), causal=causal, config=config)
                worst = float((out - expected).abs().max())
                row["problem"] = "" if worst < 0.02 else f"differs from SDPA by {worst}"
                call = partial(run, q, k, v, out, causal=causal, config=config)
                ms = do_bench(call, 20, 100, return_mode="median")
                rate = tflops(head, options.seq_len, options.batch * options.heads, causal, ms)
                row |= {"ms": ms, "tflops": rate}
            found.append(row)
    for row in sorted(found, key=lambda row: (row["head"], row["causal"], -row.get("tflops", 0))):
        rate = f"{row['tflops']:8.1f} TFLOP/s" if "tflops" in row else "        -"
        shape = f"{row['rows']:4}x{row['keys']:<4} {row['warps']} warps {row['stages']} stages"
        print(f"head {row['head']:<4} {'causal' if row['causal'] else 'full  '} {shape} {rate} {row['problem']}")
    if options.output:
        options.output.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
