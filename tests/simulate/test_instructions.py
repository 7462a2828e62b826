"""One instruction at a time against what the PTX manual says, on numbers hypothesis picks."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warplens import simulate
from warplens.ptx.tree import PtxError

LANES = 32
REGISTER = {1: ("b16", "u8"), 2: ("b16", "b16"), 4: ("b32", "b32"), 8: ("b64", "b64")}


def execute(body: str, inputs: list[np.ndarray], out: np.dtype) -> np.ndarray:
    """Run `body` once per lane; its inputs are %i0, %i1, ... and its result is %o."""
    loads, declarations = [], []
    for index, values in enumerate(inputs):
        register, load = REGISTER[values.dtype.itemsize]
        declarations.append(f".reg .{register} %i{index};")
        size = values.dtype.itemsize
        loads.append(f"ld.param.u64 %a, [p{index}]; mad.wide.u32 %a, %t, {size}, %a; ld.global.{load} %i{index}, [%a];")
    register, store = REGISTER[out.itemsize]
    params = ", ".join(f".param .u64 p{index}" for index in range(len(inputs) + 1))
    text = f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k({params}) {{
  .reg .{register} %o; .reg .b64 %a; .reg .b32 %t; .reg .pred %p<4>; .reg .b32 %r<4>; {" ".join(declarations)}
  mov.u32 %t, %tid.x; {" ".join(loads)}
  {body}
  ld.param.u64 %a, [p{len(inputs)}]; mad.wide.u32 %a, %t, {out.itemsize}, %a; st.global.{store} [%a], %o;
  ret;
}}
"""
    memory = simulate.GlobalMemory(1 << 16)
    args = [memory.alloc(values) for values in inputs] + [memory.alloc(LANES * out.itemsize)]
    simulate.run(text, "k", 1, LANES, args, memory=memory)
    return memory.read(args[-1], out, LANES)


def lanes(bits: int, signed: bool = False) -> st.SearchStrategy[np.ndarray]:
    """32 integers with the corners in them more often than chance."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    corners = st.sampled_from([low, high, 0, 1, high - 1, high // 2, bits - 1, bits])
    number = st.one_of(corners, st.integers(low, high))
    dtype = np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
    return st.lists(number, min_size=LANES, max_size=LANES).map(lambda values: np.array(values, dtype))


def wrap(value: int, bits: int, signed: bool) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def quotient(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


BINARY: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, n: a + b,
    "sub": lambda a, b, n: a - b,
    "mul.lo": lambda a, b, n: a * b,
    "mul.hi": lambda a, b, n: a * b >> n,
    "min": lambda a, b, n: min(a, b),
    "max": lambda a, b, n: max(a, b),
    "div": lambda a, b, n: quotient(a, b),
    "rem": lambda a, b, n: a - quotient(a, b) * b,
}


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("name", BINARY)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_integer_arithmetic_wraps(name: str, kind: str, data: st.DataObject) -> None:
    bits, signed = int(kind[1:]), kind[0] == "s"
    a, b = data.draw(lanes(bits, signed)), data.draw(lanes(bits, signed))
    if name in ("div", "rem"):
        b[b == 0] = 3
    got = execute(f"{name}.{kind} %o, %i0, %i1;", [a, b], a.dtype)
    expected = [wrap(BINARY[name](int(x), int(y), bits), bits, signed) for x, y in zip(a, b, strict=True)]
    assert got.tolist() == expected


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_shifts_clamp_past_the_width(kind: str, data: st.DataObject) -> None:
    bits, signed = int(kind[1:]), kind[0] == "s"
    a, n = data.draw(lanes(bits, signed)), data.draw(lanes(32))
    n[::2] %= bits + 3
    left = execute(f"shl.b{bits} %o, %i0, %i1;", [a, n], a.dtype)
    right = execute(f"shr.{kind} %o, %i0, %i1;", [a, n], a.dtype)
    for x, count, l_value, r_value in zip(a.tolist(), n.tolist(), left.tolist(), right.tolist(), strict=True):
        assert l_value == (0 if count >= bits else wrap(x << count, bits, signed))
        assert r_value == (x >> count if count < bits else (-1 if x < 0 else 0))


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32"])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_wide_products_and_mad(kind: str, data: st.DataObject) -> None:
    bits, signed = int(kind[1:]), kind[0] == "s"
    a, b = data.draw(lanes(bits, signed)), data.draw(lanes(bits, signed))
    c = data.draw(lanes(2 * bits, signed))
    got = execute(f"mad.wide.{kind} %o, %i0, %i1, %i2;", [a, b, c], c.dtype)
    expected = [wrap(int(x) * int(y) + int(z), 2 * bits, signed) for x, y, z in zip(a, b, c, strict=True)]
    assert got.tolist() == expected


@settings(max_examples=15, deadline=None)
@given(a=lanes(64), b=lanes(64))
def test_carry_chain_adds_and_subtracts_128_bits(a: np.ndarray, b: np.ndarray) -> None:
    for low, high, sign in (("add.cc", "addc", 1), ("sub.cc", "subc", -1)):
        body = f"""{{ .reg .b64 %lo; {low}.u64 %lo, %i0, %i1; {high}.u64 %o, %i1, %i0; }}"""
        got = execute(body, [a, b], np.dtype(np.uint64))
        for x, y, value in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
            total = (x | y << 64) + sign * (y | x << 64)
            assert value == (total >> 64) & (2**64 - 1)


def bfe(a: int, start: int, count: int, bits: int, signed: bool) -> int:
    start, count = start & 255, count & 255
    sign = (a >> min(start + count - 1, bits - 1)) & 1 if signed and count else 0
    value = 0
    for i in range(bits):
        value |= ((a >> (start + i)) & 1 if i < count and start + i < bits else sign) << i
    return value


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_bit_fields(kind: str, data: st.DataObject) -> None:
    bits = int(kind[1:])
    a, b = data.draw(lanes(bits)), data.draw(lanes(bits))
    start, count = data.draw(lanes(8)).astype(np.uint32), data.draw(lanes(8)).astype(np.uint32)
    start[::3] %= bits
    count[::2] %= bits
    got = execute(f"bfe.{kind} %o, %i0, %i1, %i2;", [a, start, count], a.dtype)
    for x, s, c, value in zip(a.tolist(), start.tolist(), count.tolist(), got.tolist(), strict=True):
        assert value == bfe(x, s, c, bits, kind[0] == "s")
    got = execute(f"bfi.b{bits} %o, %i0, %i1, %i2, %i3;", [a, b, start, count], a.dtype)
    for x, y, s, c, value in zip(a.tolist(), b.tolist(), start.tolist(), count.tolist(), got.tolist(), strict=True):
        mask = (((1 << c) - 1) << s) & ((1 << bits) - 1)
        assert value == (((x << s) & mask) | (y & ~mask))


@settings(max_examples=25, deadline=None)
@given(a=lanes(32), b=lanes(32), c=lanes(32), table=st.integers(0, 255))
def test_three_operand_bit_instructions(a: np.ndarray, b: np.ndarray, c: np.ndarray, table: int) -> None:
    u32 = np.dtype(np.uint32)
    lop3 = execute(f"lop3.b32 %o, %i0, %i1, %i2, {table:#x};", [a, b, c], u32).tolist()
    prmt = execute("prmt.b32 %o, %i0, %i1, %i2;", [a, b, c], u32).tolist()
    wrapped = execute("shf.l.wrap.b32 %o, %i0, %i1, %i2;", [a, b, c], u32).tolist()
    clamped = execute("shf.r.clamp.b32 %o, %i0, %i1, %i2;", [a, b, c], u32).tolist()
    for i, (x, y, z) in enumerate(zip(a.tolist(), b.tolist(), c.tolist(), strict=True)):
        assert lop3[i] == sum(
            (table >> ((x >> k & 1) << 2 | (y >> k & 1) << 1 | z >> k & 1) & 1) << k for k in range(32)
        )
        source = (y << 32 | x).to_bytes(8, "little")
        picked = [source[z >> 4 * k & 7] for k in range(4)]
        picked = [(255 if byte & 128 else 0) if z >> 4 * k & 8 else byte for k, byte in enumerate(picked)]
        assert prmt[i] == int.from_bytes(bytes(picked), "little")
        both = y << 32 | x
        assert wrapped[i] == (both << (z & 31) >> 32) & 0xFFFFFFFF
        assert clamped[i] == (both >> min(z, 32)) & 0xFFFFFFFF


@pytest.mark.parametrize("bits", [32, 64])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_counting_bits(bits: int, data: st.DataObject) -> None:
    a = data.draw(lanes(bits))
    u32 = np.dtype(np.uint32)
    values = a.tolist()
    assert execute(f"popc.b{bits} %o, %i0;", [a], u32).tolist() == [x.bit_count() for x in values]
    assert execute(f"clz.b{bits} %o, %i0;", [a], u32).tolist() == [bits - x.bit_length() for x in values]
    assert execute(f"brev.b{bits} %o, %i0;", [a], a.dtype).tolist() == [int(f"{x:0{bits}b}"[::-1], 2) for x in values]
    assert execute(f"bfind.u{bits} %o, %i0;", [a], u32).tolist() == [(x.bit_length() - 1) % 2**32 for x in values]


SINGLE = st.one_of(
    st.floats(width=32),
    st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 2.0**-126, 2.0**-149, 3.4e38, 2.0**24 + 2, 1.5]),
).map(np.float32)
SINGLES = st.lists(SINGLE, min_size=LANES, max_size=LANES).map(lambda values: np.array(values, np.float32))


def same(got: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    real = ~np.isnan(expected)
    np.testing.assert_array_equal(got[real], expected[real])


@settings(max_examples=25, deadline=None)
@given(a=SINGLES, b=SINGLES, c=SINGLES)
def test_single_precision(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    f32 = np.dtype(np.float32)
    with np.errstate(all="ignore"):
        for name, function in {
            "add.f32": np.add, "sub.rn.f32": np.subtract, "mul.f32": np.multiply, "div.rn.f32": np.divide,
            "min.f32": np.fmin, "max.f32": np.fmax, "max.NaN.f32": np.maximum,
        }.items():  # fmt: skip
            same(execute(f"{name} %o, %i0, %i1;", [a, b], f32), function(a, b))
        same(execute("sqrt.rn.f32 %o, %i0;", [a], f32), np.sqrt(a))
        same(execute("neg.f32 %o, %i0;", [a], f32), -a)
        got = execute("fma.rn.f32 %o, %i0, %i1, %i2;", [a, b, c], f32)
    for x, y, z, value in zip(a.tolist(), b.tolist(), c.tolist(), got, strict=True):
        if not all(map(math.isfinite, (x, y, z))):
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if not 2.0**-126 <= abs(exact) < 2.0**127:
            continue
        # No neighbour is closer to the exact result: one rounding.
        error = abs(Fraction(float(value)) - exact)
        for neighbour in (np.nextafter(value, np.float32(-np.inf)), np.nextafter(value, np.float32(np.inf))):
            assert error <= abs(Fraction(float(neighbour)) - exact)


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@settings(max_examples=20, deadline=None)
@given(a=SINGLES, b=SINGLES)
def test_directed_rounding_brackets_the_sum(mode: str, a: np.ndarray, b: np.ndarray) -> None:
    got = execute(f"add.{mode}.f32 %o, %i0, %i1;", [a, b], np.dtype(np.float32))
    for x, y, value in zip(a.tolist(), b.tolist(), got, strict=True):
        if not abs(x + y) < 3e38:
            continue
        exact = Fraction(x) + Fraction(y)
        down = mode == "rm" or (mode == "rz" and exact > 0)
        beyond = np.nextafter(value, np.float32(np.inf if down else -np.inf))
        low, high = (value, beyond) if down else (beyond, value)
        assert Fraction(float(low)) <= exact <= Fraction(float(high))
        assert exact != Fraction(float(beyond))


@settings(max_examples=20, deadline=None)
@given(a=SINGLES, b=SINGLES)
def test_comparisons_order_nan(a: np.ndarray, b: np.ndarray) -> None:
    tests: dict[str, Callable[[float, float], bool]] = {
        "eq": lambda x, y: x == y, "ne": lambda x, y: x < y or x > y, "lt": lambda x, y: x < y,
        "geu": lambda x, y: not x < y, "neu": lambda x, y: x != y, "equ": lambda x, y: not (x < y or x > y),
        "num": lambda x, y: x == x and y == y, "nan": lambda x, y: x != x or y != y,
    }  # fmt: skip
    for name, test in tests.items():
        body = (
            f"setp.{name}.f32 %p1|%p2, %i0, %i1; selp.b32 %r1, 1, 0, %p1; selp.b32 %r2, 2, 0, %p2; or.b32 %o, %r1, %r2;"
        )
        got = execute(body, [a, b], np.dtype(np.uint32))
        expected = [1 if test(float(x), float(y)) else 2 for x, y in zip(a, b, strict=True)]
        assert got.tolist() == expected, name


@settings(max_examples=15, deadline=None)
@given(a=lanes(32), b=lanes(32, signed=True), c=lanes(32))
def test_setp_combines_with_a_predicate(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    body = """setp.ne.u32 %p0, %i2, 0;
    setp.lo.and.u32 %p1, %i0, %i1, %p0; setp.lt.or.s32 %p2, %i0, %i1, !%p0; setp.eq.xor.b32 %p3, %i0, %i1, %p0;
    selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 2, 0, %p2; selp.u32 %r3, 4, 0, %p3;
    or.b32 %r1, %r1, %r2; or.b32 %o, %r1, %r3;"""
    b[::4] = a.view(np.int32)[::4]
    got = execute(body, [a, b, c], np.dtype(np.uint32))
    first, second = a, b.view(np.uint32)
    signed = a.view(np.int32) < b
    expected = ((first < second) & (c != 0)) * 1 | (signed | (c == 0)) * 2 | ((first == second) ^ (c != 0)) * 4
    assert got.tolist() == expected.tolist()


@settings(max_examples=20, deadline=None)
@given(a=SINGLES)
def test_float_to_integer_saturates(a: np.ndarray) -> None:
    for kind, low, high in (("s32", -(2**31), 2**31 - 1), ("u32", 0, 2**32 - 1), ("s64", -(2**63), 2**63 - 1)):
        dtype = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{int(kind[1:]) // 8}")
        for mode, whole in (("rzi", math.trunc), ("rni", round), ("rmi", math.floor), ("rpi", math.ceil)):
            got = execute(f"cvt.{mode}.{kind}.f32 %o, %i0;", [a], dtype)
            expected = [
                0 if math.isnan(x) else min(max(whole(x), low), high) if math.isfinite(x) else (high if x > 0 else low)
                for x in a.tolist()
            ]
            assert got.tolist() == expected, (kind, mode)


@settings(max_examples=20, deadline=None)
@given(a=SINGLES, b=SINGLES, n=lanes(64, signed=True))
def test_float_conversions_round_to_nearest_even(a: np.ndarray, b: np.ndarray, n: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        same(execute("cvt.rn.f16.f32 %o, %i0;", [a], np.dtype(np.float16)), a.astype(np.float16))
        packed = execute("cvt.rn.f16x2.f32 %o, %i0, %i1;", [a, b], np.dtype(np.uint32)).view(np.float16)
        same(packed[0::2], b.astype(np.float16))
        same(packed[1::2], a.astype(np.float16))
        same(execute("cvt.rn.f32.s64 %o, %i0;", [n], np.dtype(np.float32)), n.astype(np.float32))
    got = execute("cvt.rn.bf16.f32 %o, %i0;", [a], np.dtype(np.uint16))
    for x, bits in zip(a.tolist(), got.tolist(), strict=True):
        if not math.isfinite(x) or abs(x) > 3.3e38:
            continue
        value = np.uint32(bits << 16).view(np.float32)
        for other in ((bits + 1) << 16, (bits - 1 & 0xFFFF) << 16):
            neighbour = np.uint32(other).view(np.float32)
            if math.isfinite(neighbour):
                assert abs(Fraction(x) - Fraction(float(value))) <= abs(Fraction(x) - Fraction(float(neighbour)))


@settings(max_examples=10, deadline=None)
@given(a=lanes(64), b=lanes(8))
def test_moves_pack_unpack_and_extend(a: np.ndarray, b: np.ndarray) -> None:
    body = "mov.b64 {%r1, %r2}, %i0; mov.b64 %o, {%r2, %r1};"
    np.testing.assert_array_equal(execute(body, [a], a.dtype), (a >> np.uint64(32)) | (a << np.uint64(32)))
    signed = execute("cvt.s32.s8 %o, %i0;", [b], np.dtype(np.int32))
    np.testing.assert_array_equal(signed, b.view(np.int8).astype(np.int32))
    np.testing.assert_array_equal(execute("cvt.u8.u64 %o, %i0;", [a], np.dtype(np.uint16)), a.astype(np.uint8))
    clamped = execute("cvt.sat.u8.s64 %o, %i0;", [a], np.dtype(np.uint16))
    np.testing.assert_array_equal(clamped, np.clip(a.view(np.int64), 0, 255).astype(np.uint16))


HALVES = st.binary(min_size=4 * LANES, max_size=4 * LANES).map(lambda raw: np.frombuffer(raw, np.float16))


@settings(max_examples=15, deadline=None)
@given(a=HALVES, b=HALVES)
def test_packed_halves(a: np.ndarray, b: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        for name, function in {"add": np.add, "mul": np.multiply, "max": np.fmax}.items():
            pair = [a.view(np.uint32), b.view(np.uint32)]
            same(execute(f"{name}.f16x2 %o, %i0, %i1;", pair, np.dtype(np.uint32)).view(np.float16), function(a, b))
        fused = execute("fma.rn.f16 %o, %i0, %i0, %i1;", [a[:LANES], b[:LANES]], np.dtype(np.float16))
        same(fused, (a[:LANES].astype(np.float64) ** 2 + b[:LANES]).astype(np.float16))


@pytest.mark.parametrize(
    ("name", "function"),
    [("ex2.approx.f32", np.exp2), ("lg2.approx.f32", np.log2), ("rcp.rn.f32", np.reciprocal),
     ("sin.approx.f32", np.sin),
     ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x)), ("tanh.approx.f32", np.tanh), ("cos.approx.ftz.f32", np.cos)],
)  # fmt: skip
def test_special_functions(name: str, function: Callable[[np.ndarray], np.ndarray]) -> None:
    x = np.linspace(0.1, 9, LANES, dtype=np.float32)
    np.testing.assert_allclose(execute(f"{name} %o, %i0;", [x], x.dtype), function(x), rtol=1e-5, atol=1e-6)


def test_unknown_instruction_names_itself_its_line_and_its_function() -> None:
    with pytest.raises(PtxError, match=r"PTX line 7 in k: frobnicate\.b32 is not supported") as caught:
        execute("frobnicate.b32 %o, %i0;", [np.zeros(LANES, np.uint32)], np.dtype(np.uint32))
    assert caught.value.function == "k"
    with pytest.raises(PtxError, match=r"wgmma\.fence\.sync\.aligned is not supported"):
        execute("wgmma.fence.sync.aligned;", [np.zeros(LANES, np.uint32)], np.dtype(np.uint32))
    with pytest.raises(PtxError, match=r"PTX line 7 in k: %pm7 is not a register, a variable or a number"):
        execute("mov.u32 %o, %pm7;", [np.zeros(LANES, np.uint32)], np.dtype(np.uint32))
    with pytest.raises(PtxError, match=r"redux\.sync has a form that the interpreter does not support"):
        execute("redux.sync;", [np.zeros(LANES, np.uint32)], np.dtype(np.uint32))
    with pytest.raises(PtxError, match=r"register %nope is not declared"):
        execute("add.u32 %nope, %i0, %i0;", [np.zeros(LANES, np.uint32)], np.dtype(np.uint32))
