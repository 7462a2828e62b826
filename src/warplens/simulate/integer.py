"""Integer arithmetic and logic."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from warplens.simulate.batch_state import Group, Reader, State, Step
from warplens.simulate.decode_site import DecodeSite, builds
from warplens.simulate.floating import float_binary, float_fma, float_unary
from warplens.simulate.numeric import PACKED, SIGNED, TYPE_BYTES, UNSIGNED, Array, dtype_of, is_float, multiply_high

_CARRY = "carry flag"


def bits_of(kind: str) -> str:
    """The unsigned type of the same width, because wrap-around arithmetic does not depend on the sign."""
    return f"u{8 * TYPE_BYTES[kind]}"


@builds("add", "sub")
def _add(site: DecodeSite) -> Step:
    if is_float(site.kind):
        return float_binary(site)
    if "cc" in site.has:
        return _with_carry(site, use=False)
    function = operator.add if site.opcode == "add" else operator.sub
    if "sat" in site.has and site.kind == "s32":
        a, b = (site.read(text, "s32") for text in site.need(3)[1:3])
        low, high = -(1 << 31), (1 << 31) - 1
        return site.assign(
            site.operands[0],
            "s32",
            lambda R: np.clip(function(a(R).astype(np.int64), b(R).astype(np.int64)), low, high).astype(np.int32),
        )
    return _binary(site, function, PACKED.get(site.kind))


@builds("addc", "subc")
def _addc(site: DecodeSite) -> Step:
    return _with_carry(site, use=True)


def _with_carry(site: DecodeSite, use: bool) -> Step:
    """`add.cc`, `addc`, `sub.cc`, `subc`: the flag is one predicate per lane; a borrow sets it."""
    kind = bits_of(site.kind)
    a, b = (site.read(text, kind) for text in site.need(3)[1:3])
    flag = site.registers.special(_CARRY, 0)
    adds = site.opcode in ("add", "addc")
    one = UNSIGNED[TYPE_BYTES[kind]].type(1)

    def compute(R: list[Array]) -> tuple[Array, Array]:
        x, y = a(R), b(R)
        carry = R[flag] if use else np.zeros(len(x), bool)
        first = x + y if adds else x - y
        over = first < x if adds else x < y
        second = first + carry * one if adds else first - carry * one
        carried = (second < first) if adds else (first < carry * one)
        return second.astype(x.dtype), over | carried

    return _keep_carry(site, kind, compute, flag)


def _keep_carry(site: DecodeSite, kind: str, compute: Callable[[list[Array]], tuple[Array, Array]], flag: int) -> Step:
    """Write the first result of `compute`, and with `.cc` the second, the carry, to the flag."""
    write = site.assign(site.operands[0], kind, lambda R: compute(R)[0])
    keep = "cc" in site.has

    def step(S: State, g: Group) -> None:
        carry = compute(S.R)[1] if keep else None
        write(S, g)
        if carry is not None:
            S.R[flag] = carry if g.write is None else np.where(g.write, carry, S.R[flag])

    return step


def _binary(site: DecodeSite, function: Callable[[Array, Array], Array], element: str | None = None) -> Step:
    kind = bits_of(site.kind)
    d, a_text, b_text = site.need(3)[:3]
    a, b = site.read(a_text, kind), site.read(b_text, kind)
    if element is not None:
        part = dtype_of(element)
        return site.assign(d, kind, lambda R: function(a(R).view(part), b(R).view(part)))
    return site.assign(d, kind, lambda R: function(a(R), b(R)))


@builds("and", "or", "xor")
def _logic(site: DecodeSite) -> Step:
    function = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[site.opcode]
    if "pred" in site.has:
        a, b = (site.read(text, "pred") for text in site.need(3)[1:3])
        return site.assign(site.operands[0], "pred", lambda R: function(a(R), b(R)))
    return _binary(site, function)


@builds("not", "cnot")
def _not(site: DecodeSite) -> Step:
    kind = "pred" if "pred" in site.has else bits_of(site.kind)
    a = site.read(site.need(2)[1], kind)
    if site.opcode == "cnot":
        return site.assign(site.operands[0], kind, lambda R: (a(R) == 0).astype(dtype_of(kind)))
    return site.assign(site.operands[0], kind, lambda R: ~a(R))


@builds("mul", "mul24")
def _mul(site: DecodeSite) -> Step:
    if is_float(site.kind):
        return float_binary(site)
    product, kind = _product(site)
    return site.assign(site.operands[0], kind, product)


def _product(site: DecodeSite) -> tuple[Reader, str]:
    """The product selected by `.lo`, `.hi`, `.wide` or `24`, and its type."""
    kind = site.kind
    width = TYPE_BYTES[kind]
    signed = kind.startswith("s")
    if "wide" in site.has:
        wide = f"{kind[0]}{16 * width}"
        dtype = dtype_of(wide)
        a, b = (site.read(text, kind) for text in site.need(3)[1:3])
        return (lambda R: a(R).astype(dtype) * b(R).astype(dtype)), wide
    if "hi" in site.has and width == 8:
        a, b = (site.read(text, "u64") for text in site.need(3)[1:3])
        if not signed:
            return (lambda R: multiply_high(a(R), b(R))), kind

        def high(R: list[Array]) -> Array:
            x, y = a(R), b(R)
            zero = np.uint64(0)
            fix = np.where(x.view(np.int64) < 0, y, zero) + np.where(y.view(np.int64) < 0, x, zero)
            return multiply_high(x, y) - fix

        return high, kind
    if site.opcode in ("mul24", "mad24") and width != 4:
        raise site.unknown()
    if "hi" in site.has or site.opcode in ("mul24", "mad24"):
        a, b = (site.read(text, kind) for text in site.need(3)[1:3])
        dtype = (SIGNED if signed else UNSIGNED)[2 * width]
        narrow = dtype_of(kind)
        if "hi" in site.has and site.opcode in ("mul", "mad"):
            return (lambda R: (a(R).astype(dtype) * b(R).astype(dtype) >> (8 * width)).astype(narrow)), kind
        shift = 16 if "hi" in site.has else 0

        def cut(values: Array) -> Array:
            values = values.astype(dtype) & 0xFFFFFF
            return np.where(values & 0x800000, values - (1 << 24), values) if signed else values

        return (lambda R: (cut(a(R)) * cut(b(R)) >> shift).astype(narrow)), kind
    a, b = (site.read(text, bits_of(kind)) for text in site.need(3)[1:3])
    return (lambda R: a(R) * b(R)), bits_of(kind)


@builds("mad", "mad24", "madc")
def _mad(site: DecodeSite) -> Step:
    if is_float(site.kind):
        return float_fma(site)
    product, kind = _product(site)
    kind = bits_of(kind)
    dtype = dtype_of(kind)
    c = site.read(site.need(4)[3], kind)
    flag = site.registers.special(_CARRY, 0)
    carry_in = site.opcode == "madc"
    if not carry_in and "cc" not in site.has:
        return site.assign(site.operands[0], kind, lambda R: product(R).view(dtype) + c(R))

    def total(R: list[Array]) -> tuple[Array, Array]:
        x, y = product(R).view(dtype), c(R)
        first = x + y
        second = first + (R[flag].astype(dtype) if carry_in else dtype.type(0))
        return second, (first < x) | (second < first)

    return _keep_carry(site, kind, total, flag)


@builds("div", "rem")
def _div(site: DecodeSite) -> Step:
    if is_float(site.kind):
        return float_binary(site)
    kind = site.kind
    d, a_text, b_text = site.need(3)[:3]
    a, b = site.read(a_text, kind), site.read(b_text, kind)
    bits = UNSIGNED[TYPE_BYTES[kind]]
    ones = bits.type((1 << 8 * TYPE_BYTES[kind]) - 1)
    divides = site.opcode == "div"
    signed = kind.startswith("s")

    def compute(R: list[Array]) -> Array:
        x, y = a(R), b(R)
        # Divide unsigned magnitudes: PTX truncates towards zero, numpy floors, and the minimum has no positive value.
        xs, ys = x.view(bits), y.view(bits)
        if signed:
            xs, ys = np.where(x < 0, 0 - xs, xs).astype(bits), np.where(y < 0, 0 - ys, ys).astype(bits)
        safe = np.where(ys == 0, bits.type(1), ys)
        result = xs // safe if divides else xs % safe
        if signed:
            flip = (x < 0) ^ (y < 0) if divides else x < 0
            result = np.where(flip, 0 - result, result).astype(bits)
        return np.where(ys == 0, ones if divides else x.view(bits), result)

    return site.assign(d, bits_of(kind), compute)


@builds("min", "max")
def _minmax(site: DecodeSite) -> Step:
    if is_float(site.kind):
        return float_binary(site)
    kind = site.kind
    function = np.minimum if site.opcode == "min" else np.maximum
    if kind in PACKED:
        a, b = (site.read(text, "u32") for text in site.need(3)[1:3])
        part = dtype_of(PACKED[kind])
        return site.assign(site.operands[0], "u32", lambda R: function(a(R).view(part), b(R).view(part)))
    a, b = (site.read(text, kind) for text in site.need(3)[1:3])
    if "relu" in site.has:
        return site.assign(site.operands[0], kind, lambda R: np.maximum(function(a(R), b(R)), 0).astype(dtype_of(kind)))
    return site.assign(site.operands[0], kind, lambda R: function(a(R), b(R)))


@builds("abs", "neg")
def _sign(site: DecodeSite) -> Step:
    if is_float(site.kind):
        return float_unary(site)
    a = site.read(site.need(2)[1], site.kind)
    function = np.abs if site.opcode == "abs" else np.negative
    return site.assign(site.operands[0], site.kind, lambda R: function(a(R)))


@builds("sad")
def _sad(site: DecodeSite) -> Step:
    kind = site.kind
    d, a_text, b_text, c_text = site.need(4)[:4]
    a, b, c = site.read(a_text, kind), site.read(b_text, kind), site.read(c_text, bits_of(kind))
    bits = dtype_of(bits_of(kind))

    def compute(R: list[Array]) -> Array:
        x, y = a(R), b(R)
        return c(R) + np.where(x < y, y.view(bits) - x.view(bits), x.view(bits) - y.view(bits))

    return site.assign(d, bits_of(kind), compute)
