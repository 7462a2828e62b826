"""The plain kernels as compile jobs for a Hopper GPU."""

from __future__ import annotations

from collections.abc import Iterator

from triton.experimental.gluon import language as gl

import tests.support.plain_kernels as kernels
from tests.support.triton_examples import Job

CAPABILITY = 90


def plain_jobs() -> Iterator[Job]:
    tile = {"BM": 128, "BN": 128, "BK": 64}
    warps = {"num_warps": 4, "num_stages": 3}
    matrices = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "M": "i32", "N": "i32", "K": "i32"}
    tiles = {**matrices, "a": _descriptor(128, 64), "b": _descriptor(64, 128), "c": _descriptor(128, 128)}
    heads = dict.fromkeys(("q", "k", "v", "out", "dout", "dk", "dv"), "*fp16")
    stats = {"dq": "*fp32", "lse": "*fp32", "delta": "*fp32", "scale": "fp32", "length": "i32"}
    rows = {"x": "*fp32", "out": "*fp32", "weight": "*fp32", "bias": "*fp32", "n": "i32", "eps": "fp32"}
    yield Job(kernels.add, {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 1024}, {})
    yield Job(kernels.row_softmax, {"out": "*fp32", "source": "*fp32", "columns": "i32"}, {"BLOCK": 1024}, {})
    yield Job(kernels.layer_norm, rows, {"BLOCK": 1024}, {})
    yield Job(kernels.gemm, matrices, tile, warps)
    yield Job(kernels.gemm_tma, tiles, tile, warps)
    yield Job(kernels.gemm_persistent, matrices, {**tile, "PROGRAMS": 132}, {"num_warps": 8, "num_stages": 3})
    yield Job(kernels.flash_forward, heads | stats, {"BM": 128, "BN": 64, "HEAD": 64}, warps)
    yield Job(
        kernels.flash_backward, heads | stats, {"BM": 64, "BN": 128, "HEAD": 64}, {"num_warps": 8, "num_stages": 2}
    )
    inductor = {"in_out_ptr0": "*bf16", "in_ptr0": "*bf16", "xnumel": "i32"}
    yield Job(kernels.triton_poi_fused_add_gelu_0, inductor, {"XBLOCK": 1024}, {})
    sums = {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32", "r0_numel": "i32"}
    yield Job(kernels.triton_red_fused_sum_1, sums, {"XBLOCK": 1, "R0_BLOCK": 2048}, {"num_warps": 16})
    yield Job(kernels.collatz, {"out": "*i32", "limit": "i32"}, {}, {})
    blocked = gl.BlockedLayout([4], [32], [4], [0])
    scaled = {"x": "*fp32", "out": "*fp32", "factor": "fp32", "n": "i32"}
    yield Job(kernels.gluon_scale, scaled, {"BLOCK": 1024, "layout": blocked}, {})
    signature = {"a": _gluon(128, 64), "b": _gluon(64, 128), "c": _gluon(128, 128), "K": "i32"}
    yield Job(kernels.gluon_gemm, signature, {**tile, "STAGES": 3, "num_warps": 8}, {"num_warps": 8})


def blackwell_job() -> Job:
    """What Triton itself specialises: its Hopper pass fails on this kernel in 3.6.0 and in 3.9.0."""
    matrices = {"a": _descriptor(128, 64), "b": _descriptor(64, 128), "c": _descriptor(128, 128)}
    sizes = {"M": "i32", "N": "i32", "K": "i32"}
    return Job(kernels.gemm_specialised, matrices | sizes, {"BM": 128, "BN": 128, "BK": 64}, {"num_warps": 4})


def _descriptor(*shape: int) -> str:
    return f"tensordesc<fp16[{', '.join(map(str, shape))}]>"


def _gluon(*shape: int) -> str:
    layout = gl.NVMMASharedLayout.get_default_for(list(shape), gl.float16)
    return f"tensordesc<fp16[{', '.join(map(str, shape))}],{layout!r}>"
