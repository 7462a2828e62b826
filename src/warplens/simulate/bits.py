"""Shifts, bit fields, bit counts, byte permutations and small dot products."""

from __future__ import annotations

import operator

import numpy as np

from warplens.simulate.batch_state import Group, State, Step
from warplens.simulate.decode_site import DecodeSite, builds
from warplens.simulate.integer import bits_of
from warplens.simulate.numeric import SIGNED, TYPE_BYTES, UNSIGNED, Array, dtype_of, is_float, population, top_bit


@builds("shl", "shr")
def _shift(site: DecodeSite) -> Step:
    """Amounts beyond the width give zero (or the sign), as in numpy once the amount fits its type."""
    if is_float(site.kind):
        raise site.unknown()
    kind = site.kind if site.opcode == "shr" else bits_of(site.kind)
    dtype = dtype_of(kind)
    d, a_text, b_text = site.need(3)[:3]
    a, amount = site.read(a_text, kind), site.read(b_text, "u32")
    bound = np.uint32(8 * dtype.itemsize)
    function = operator.lshift if site.opcode == "shl" else operator.rshift
    if dtype.itemsize == 4 and dtype.kind == "u":
        return site.assign(d, kind, lambda R: function(a(R), amount(R)))
    return site.assign(d, kind, lambda R: function(a(R), np.minimum(amount(R), bound).astype(dtype)))


@builds("shf")
def _funnel(site: DecodeSite) -> Step:
    d, low_text, high_text, amount_text = site.need(4)[:4]
    low, high, amount = (site.read(text, "u32") for text in (low_text, high_text, amount_text))
    wraps, left = "wrap" in site.has, "l" in site.has

    def compute(R: list[Array]) -> Array:
        count = (amount(R) & np.uint32(31) if wraps else np.minimum(amount(R), np.uint32(32))).astype(np.uint64)
        both = (high(R).astype(np.uint64) << np.uint64(32)) | low(R)
        return ((both << count) >> np.uint64(32) if left else both >> count).astype(np.uint32)

    return site.assign(d, "u32", compute)


def _ones(length: Array, dtype: np.dtype[np.generic]) -> Array:
    """The `length` low bits set. Beyond the width, numpy's shift gives 0 and the subtraction all ones."""
    return (dtype.type(1) << length.astype(dtype)) - dtype.type(1)


@builds("bfe")
def _extract(site: DecodeSite) -> Step:
    kind = site.kind
    dtype = dtype_of(bits_of(kind))
    d, a_text, b_text, c_text = site.need(4)[:4]
    a, position, length = site.read(a_text, bits_of(kind)), site.read(b_text, "u32"), site.read(c_text, "u32")
    top = 8 * dtype.itemsize - 1
    signed = kind.startswith("s")

    def compute(R: list[Array]) -> Array:
        start, count = position(R) & np.uint32(255), length(R) & np.uint32(255)
        mask = _ones(count, dtype)
        value = (a(R) >> start.astype(dtype)) & mask
        if signed:
            sign = (a(R) >> np.minimum(start + np.maximum(count, 1) - 1, top).astype(dtype)) & dtype.type(1)
            outside = ~(mask & (dtype.type((1 << (top + 1)) - 1) >> start.astype(dtype)))
            value = np.where((sign != 0) & (count != 0), value | outside, value)
        return value

    return site.assign(d, bits_of(kind), compute)


@builds("bfi")
def _insert(site: DecodeSite) -> Step:
    kind = bits_of(site.kind)
    dtype = dtype_of(kind)
    d, a_text, b_text, c_text, e_text = site.need(5)[:5]
    a, b = site.read(a_text, kind), site.read(b_text, kind)
    position, length = site.read(c_text, "u32"), site.read(e_text, "u32")

    def compute(R: list[Array]) -> Array:
        start = (position(R) & np.uint32(255)).astype(dtype)
        mask = _ones(length(R) & np.uint32(255), dtype) << start
        return ((a(R) << start) & mask) | (b(R) & ~mask)

    return site.assign(d, kind, compute)


@builds("bmsk")
def _bitmask(site: DecodeSite) -> Step:
    a, b = (site.read(text, "u32") for text in site.need(3)[1:3])
    clamps = "clamp" in site.has

    def compute(R: list[Array]) -> Array:
        start, count = (a(R), b(R)) if clamps else (a(R) & np.uint32(31), b(R) & np.uint32(31))
        return _ones(np.minimum(count, np.uint32(32)), np.dtype(np.uint32)) << start

    return site.assign(site.operands[0], "u32", compute)


@builds("szext")
def _extend(site: DecodeSite) -> Step:
    kind = site.kind
    a, b = (site.read(text, "u32") for text in site.need(3)[1:3])
    clamps, signed = "clamp" in site.has, kind == "s32"

    def compute(R: list[Array]) -> Array:
        count = np.minimum(b(R), np.uint32(32)) if clamps else b(R) & np.uint32(31)
        mask = _ones(count, np.dtype(np.uint32))
        value = a(R) & mask
        sign = (a(R) >> (np.maximum(count, 1) - np.uint32(1))) & np.uint32(1)
        return np.where((sign != 0) & (count != 0), value | ~mask, value) if signed else value

    return site.assign(site.operands[0], "u32", compute)


@builds("popc", "clz", "brev", "bfind")
def _count(site: DecodeSite) -> Step:
    kind = site.kind
    width = 8 * TYPE_BYTES[kind]
    bits = site.read(site.need(2)[1], bits_of(kind))
    d = site.operands[0]
    if site.opcode == "popc":
        return site.assign(d, "u32", lambda R: population(bits(R)))
    if site.opcode == "clz":
        return site.assign(d, "u32", lambda R: (width - 1 - top_bit(bits(R))).astype(np.uint32))
    if site.opcode == "brev":

        def reverse(R: list[Array]) -> Array:
            raw = np.ascontiguousarray(bits(R))
            flat = np.unpackbits(raw.view(np.uint8).reshape(len(raw), -1), axis=1, bitorder="little")
            return np.packbits(np.ascontiguousarray(flat[:, ::-1]), axis=1, bitorder="little").view(raw.dtype)[:, 0]

        return site.assign(d, bits_of(kind), reverse)
    signed, amount = kind.startswith("s"), "shiftamt" in site.has

    def find(R: list[Array]) -> Array:
        value = bits(R)
        if signed:
            value = np.where(value.view(SIGNED[width // 8]) < 0, ~value, value)
        position = top_bit(value)
        return np.where(position < 0, -1, width - 1 - position if amount else position).astype(np.int32)

    return site.assign(d, "s32", find)


@builds("lop3")
def _lop3(site: DecodeSite) -> Step:
    """Any function of three bits: the union of the table's minterms, or of the complement's if that is shorter."""
    operands = site.need(5)
    paired = any(word in site.has for word in ("or", "and")) and len(operands) == 6
    d, p = (part.strip() for part in operands[0].split("|")) if paired else (operands[0], "")
    a, b, c = (site.read(text, "u32") for text in operands[1:4])
    table = int(operands[4], 0)
    inverted = bin(table & 255).count("1") > 4
    terms = [i for i in range(8) if (table >> i & 1) != inverted]

    def compute(R: list[Array]) -> Array:
        x, y, z = a(R), b(R), c(R)
        pairs = ((~x, x), (~y, y), (~z, z))
        total = np.zeros(len(x), np.uint32)
        for i in terms:
            total = total | (pairs[0][i >> 2 & 1] & pairs[1][i >> 1 & 1] & pairs[2][i & 1])
        return ~total if inverted else total

    write = site.assign(d, "u32", compute)
    if not paired:
        return write
    q = site.read(operands[5], "pred")
    any_bit = "or" in site.has
    write_p = site.assign(p, "pred", lambda R: ((compute(R) != 0) | q(R)) if any_bit else ((compute(R) != 0) & q(R)))

    def step(S: State, g: Group) -> None:
        write_p(S, g)
        write(S, g)

    return step


@builds("prmt")
def _permute(site: DecodeSite) -> Step:
    d, a_text, b_text, c_text = site.need(4)[:4]
    a, b, c = (site.read(text, "u32") for text in (a_text, b_text, c_text))
    mode = next((word for word in site.modifiers if word in _PERMUTES), "")

    def compute(R: list[Array]) -> Array:
        both = (b(R).astype(np.uint64) << np.uint64(32)) | a(R)
        select = c(R)
        result = np.zeros(len(both), np.uint32)
        for place in range(4):
            if mode:
                nibble = _PERMUTES[mode][:, place][select & np.uint32(3)]
            else:
                nibble = (select >> np.uint32(4 * place)) & np.uint32(15)
            byte = ((both >> ((nibble & np.uint32(7)).astype(np.uint64) << np.uint64(3))) & np.uint64(255)).astype(
                np.uint32
            )
            spread = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
            result |= np.where(nibble & np.uint32(8), spread, byte) << np.uint32(8 * place)
        return result

    return site.assign(d, "u32", compute)


_PERMUTES = {
    name: np.array(rows, np.uint32)
    for name, rows in {
        "f4e": [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]],
        "b4e": [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]],
        "rc8": [[i] * 4 for i in range(4)],
        "ecl": [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]],
        "ecr": [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]],
        "rc16": [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
    }.items()
}


@builds("dp4a", "dp2a")
def _dot(site: DecodeSite) -> Step:
    d, a_text, b_text, c_text = site.need(4)[:4]
    first, second = site.kinds[0], site.kinds[1]
    a, b, c = (site.read(text, "u32") for text in (a_text, b_text, c_text))
    quad = site.opcode == "dp4a"
    high = "hi" in site.has

    def parts(bits: Array, kind: str, width: int) -> Array:
        dtype = (SIGNED if kind.startswith("s") else UNSIGNED)[width]
        return np.ascontiguousarray(bits).view(dtype).reshape(len(bits), -1).astype(np.int64)

    def compute(R: list[Array]) -> Array:
        y = parts(b(R), second, 1)
        if quad:
            x = parts(a(R), first, 1)
        else:
            x, y = parts(a(R), first, 2), y[:, 2:] if high else y[:, :2]
        return c(R) + (x * y).sum(axis=1).astype(np.uint32)

    return site.assign(d, "u32", compute)
