"""Real kernels from nvcc and Triton, run by the interpreter, against numpy."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from warplens import simulate
from warplens.ptx import tree

GOLDEN = Path(__file__).parents[1] / "golden" / "ptx"
TRITON = ["triton", "triton39"]
EVERY_TRITON = ["triton", "triton37", "triton38", "triton39"]
NVCC = ["nvcc_kernels", "nvcc_kernels_lineinfo", "nvcc_kernels_debug", "nvcc12_kernels"]
NVCC += ["nvrtc12_kernels", "nvrtc13_kernels"]


@cache
def module(name: str) -> tree.PtxModule:
    return tree.parse((GOLDEN / f"{name}.ptx").read_text())


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape[0]).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "per_block", "threads", "extra"),
    [(name, 256, 256, []) for name in NVCC] + [(f"{name}_vector_add", 1024, 128, [0, 0]) for name in EVERY_TRITON],
)
def test_vector_add(name: str, per_block: int, threads: int, extra: list[int]) -> None:
    n = 5003
    a, b = normal(n), normal(n + 1)[:n]
    memory = simulate.GlobalMemory()
    args = [memory.alloc(a), memory.alloc(b), memory.alloc(a.nbytes)]
    simulate.run(module(name), "vector_add", -(-n // per_block), threads, [*args, n, *extra], memory=memory)
    np.testing.assert_array_equal(memory.read(args[2], np.float32, n), a + b)


@pytest.mark.parametrize("name", [*NVCC, "triton_softmax", "triton39_softmax"])
def test_softmax(name: str) -> None:
    rows, columns = 12, 784
    x = normal(rows, columns)
    memory = simulate.GlobalMemory()
    source, out = memory.alloc(x), memory.alloc(x.nbytes)
    if name not in NVCC:
        simulate.run(module(name), "softmax", rows, 128, [out, source, columns, 0, 0], memory=memory, shared=64)
    else:
        simulate.run(module(name), "softmax", rows, 256, [source, out, columns], memory=memory)
    expected = np.exp(x - x.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(memory.read(out, np.float32, x.size).reshape(x.shape), expected, rtol=2e-5)


@pytest.mark.parametrize("name", NVCC)
def test_reduction_with_calls_atomics_and_dynamic_shared_memory(name: str) -> None:
    n = 3000
    x = normal(n)
    memory = simulate.GlobalMemory()
    source, out = memory.alloc(x), memory.alloc(4)
    program = simulate.LoadedModule(module(name), memory)
    program.run("reduce", 4, 128, [source, out, n], shared=512)
    factor = np.array([0, 1, 3, 6], np.float32)[np.arange(n) & 3]
    np.testing.assert_allclose(memory.read(out, np.float32, 1)[0], (x * factor).sum(dtype=np.float64), rtol=1e-4)
    assert memory.read(program.symbols["visits"], np.uint64, 1)[0] == 7 + 4


@pytest.mark.parametrize("version", TRITON)
def test_triton_reduction(version: str) -> None:
    n = 4000
    x = normal(n)
    memory = simulate.GlobalMemory()
    source, out = memory.alloc(x), memory.alloc(4)
    simulate.run(module(f"{version}_reduce"), "reduce", 3, 128, [source, out, n, 0, 0], memory=memory, shared=64)
    np.testing.assert_allclose(memory.read(out, np.float32, 1)[0], x.sum(dtype=np.float64), rtol=1e-4)


@pytest.mark.parametrize("name", NVCC)
def test_tiled_matmul_in_cuda(name: str) -> None:
    n = 64
    a, b = normal(n, n), normal(n, n).T.copy()
    memory = simulate.GlobalMemory()
    args = [memory.alloc(a), memory.alloc(b), memory.alloc(a.nbytes)]
    simulate.run(module(name), "tiled_matmul", (4, 4), (16, 16), [*args, n], memory=memory)
    np.testing.assert_allclose(memory.read(args[2], np.float32, n * n).reshape(n, n), a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("version", EVERY_TRITON)
def test_tiled_matmul_in_triton_uses_tensor_cores(version: str) -> None:
    m, n, k = 96, 64, 160
    a, b = normal(m, k).astype(np.float16), normal(k, n).astype(np.float16)
    memory = simulate.GlobalMemory()
    args = [memory.alloc(a), memory.alloc(b), memory.alloc(4 * m * n)]
    simulate.run(
        module(f"{version}_matmul_sm80"),
        "matmul",
        (m // 32, n // 32),
        128,
        [*args, m, n, k, 0, 0],
        memory=memory,
        shared=8192,
    )
    expected = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_allclose(memory.read(args[2], np.float32, m * n).reshape(m, n), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("version", TRITON)
def test_fused_attention(version: str) -> None:
    heads, length, width = 3, 96, 32
    q, k, v = (normal(heads + i, length, width)[:heads].astype(np.float16) for i in range(3))
    memory = simulate.GlobalMemory()
    args = [memory.alloc(x) for x in (q, k, v)] + [memory.alloc(4 * q.size)]
    scale = np.float32(np.log2(np.e) / np.sqrt(width))
    simulate.run(
        module(f"{version}_attention_sm80"),
        "attention",
        (length // 32, heads),
        64,
        [*args, scale, length, 0, 0],
        memory=memory,
        shared=32768,
    )
    scores = (q.astype(np.float32) @ k.astype(np.float32).transpose(0, 2, 1)) / np.sqrt(width)
    scores += np.triu(np.full((length, length), -np.inf, np.float32), 1)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    expected = (weights / weights.sum(axis=2, keepdims=True)) @ v.astype(np.float32)
    got = memory.read(args[3], np.float32, q.size).reshape(q.shape)
    np.testing.assert_allclose(got, expected, rtol=5e-3, atol=2e-3)


@pytest.mark.parametrize("version", TRITON)
def test_bf16_matmul_rounds_its_result_once(version: str) -> None:
    m, n, k = 64, 64, 96
    a, b = (normal(*shape).view(np.uint32) & 0xFFFF0000 for shape in ((m, k), (k, n)))
    memory = simulate.GlobalMemory()
    args = [memory.alloc((x >> 16).astype(np.uint16)) for x in (a, b)] + [memory.alloc(2 * m * n)]
    simulate.run(
        module(f"{version}_matmul_bf16_sm80"),
        "matmul",
        (1, 2),
        128,
        [*args, m, n, k, 0, 0],
        memory=memory,
        shared=24576,
    )
    got = (memory.read(args[2], np.uint16, m * n).astype(np.uint32) << 16).view(np.float32).reshape(m, n)
    np.testing.assert_allclose(got, a.view(np.float32) @ b.view(np.float32), rtol=2**-8, atol=1e-3)


def test_gluon_row_sums() -> None:
    x = normal(9, 1000)
    memory = simulate.GlobalMemory()
    source, out = memory.alloc(x), memory.alloc(4 * 9)
    simulate.run(module("gluon_row_sum"), "row_sum", 9, 128, [source, out, 1000, 0, 0], memory=memory, shared=64)
    np.testing.assert_allclose(memory.read(out, np.float32, 9), x.sum(axis=1), rtol=1e-3, atol=1e-4)


def test_cute_saxpy_takes_its_pointers_as_byte_arrays() -> None:
    x, y = normal(1024), normal(1025)[:1024]
    memory = simulate.GlobalMemory()
    args = [memory.alloc(x), memory.alloc(y)]
    (entry,) = module("cute_saxpy").entries
    simulate.run(module("cute_saxpy"), entry.name, 8, 128, [*args, 1000], memory=memory, shared=512)
    expected = np.where(np.arange(1024) < 1000, x * 2 + y, y)
    np.testing.assert_allclose(memory.read(args[1], np.float32, 1024), expected, rtol=1e-6, atol=1e-6)


def collatz(values: np.ndarray) -> np.ndarray:
    table = [1, 2, 3]
    out = np.full(len(values), -777, np.int64)
    for i, start in enumerate(values.tolist()):
        v, steps = start, 0
        while v > 1 and steps <= 200:
            v = 3 * v + 1 if v & 1 else v // 2
            steps += 1
        if steps > 200:
            continue
        bits = steps & 0xFFFFFFFF
        out[i] = [
            steps + table[i % 3], steps * 3, steps - 100, steps ^ 0x55, bits.bit_count(), 32 - bits.bit_length(),
            int(f"{bits:032b}"[::-1], 2), -steps,
        ][i & 7]  # fmt: skip
    for warp in range(0, len(values), 32):
        lanes = [i for i in range(warp, min(warp + 32, len(values))) if out[i] != -777]
        odd = {i: any(j & 1 and (out[j] & 3) == (out[i] & 3) for j in lanes) for i in lanes}
        for i in lanes:
            out[i] += 1000 if odd[i] else 0
    return out.astype(np.int32)


@pytest.mark.parametrize("name", NVCC)
def test_divergent_lanes_meet_again(name: str) -> None:
    n = 200
    values = np.random.default_rng(3).integers(1, 3000, n).astype(np.int32)
    values[17] = 837799 % 100003
    memory = simulate.GlobalMemory()
    source, out = memory.alloc(values), memory.alloc(np.full(n, -777, np.int32))
    simulate.run(module(name), "divergent", 2, 128, [source, out, n], memory=memory)
    np.testing.assert_array_equal(memory.read(out, np.int32, n), collatz(values))


def test_half_precision_kernel() -> None:
    n = 300
    a = normal(n).astype(np.float16)
    b = (normal(n).view(np.uint32) >> 16).astype(np.uint16)
    memory = simulate.GlobalMemory()
    args = [memory.alloc(a), memory.alloc(b), memory.alloc(4 * n), memory.alloc(2 * n), memory.alloc(8 * n)]
    simulate.run(module("nvcc_kernels"), "halves", 3, 128, [*args, n], memory=memory)
    c = memory.read(args[2], np.float16, 2 * n).reshape(n, 2)
    wide = a.astype(np.float64)
    np.testing.assert_array_equal(c[:, 0], (wide * 2 + 1).astype(np.float16))
    np.testing.assert_array_equal(c[:, 1], (wide * 0.5 + wide).astype(np.float16))
    y = (b.astype(np.uint32) << 16).view(np.float32)
    d = (memory.read(args[3], np.uint16, n).astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(d, (y + 1.5) * y, rtol=2**-6, atol=1e-2)
    e = memory.read(args[4], np.float64, n)
    np.testing.assert_array_equal(e, np.sqrt(wide * wide + 1) + np.trunc(np.float32(1e6) * y).astype(np.float64))


def test_async_copies_arrive_before_they_are_waited_for() -> None:
    x = normal(128, 4)
    memory = simulate.GlobalMemory()
    source, out = memory.alloc(x), memory.alloc(64 * 16)
    simulate.run(module("nvcc_kernels"), "async_copy", 1, 64, [source, out], memory=memory)
    np.testing.assert_array_equal(memory.read(out, np.float32, 256).reshape(64, 4), (x[:64] + x[64:])[::-1])


def test_same_bytes_and_times_every_time() -> None:
    def once() -> tuple[bytes, bytes, int]:
        x = normal(12, 784)
        memory = simulate.GlobalMemory()
        source, out = memory.alloc(x), memory.alloc(x.nbytes)
        result = simulate.run(module("nvcc_kernels"), "softmax", 12, 256, [source, out, 784], memory=memory)
        return memory.read(out, np.uint8, x.nbytes).tobytes(), result.blocks.tobytes(), result.cycles

    assert once() == once()


def test_blocks_of_a_large_grid_queue_for_their_sms() -> None:
    n = 64 * 256
    a = normal(n)
    memory = simulate.GlobalMemory()
    args = [memory.alloc(a), memory.alloc(a), memory.alloc(a.nbytes)]
    clock = simulate.CycleClock(sms=3, blocks_per_sm=2)
    result = simulate.run(module("nvcc_kernels"), "vector_add", 64, 256, [*args, n], memory=memory, clock=clock)
    np.testing.assert_array_equal(memory.read(args[2], np.float32, n), a + a)
    assert set(result.blocks["sm"]) == {0, 1, 2}
    for sm in range(3):
        rows = result.blocks[result.blocks["sm"] == sm]
        events = sorted([(start, 1) for start in rows["start"]] + [(end, -1) for end in rows["end"]])
        assert max(np.cumsum([change for _, change in events])) == 2
