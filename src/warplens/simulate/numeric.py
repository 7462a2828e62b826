"""PTX number types as numpy arrays: registers hold unsigned bits, and operations view them as the type they need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
"""A numpy array of any type, because every `view` changes the element type without the type checker's knowledge."""

UNSIGNED: dict[int, np.dtype[Any]] = {width: np.dtype(f"u{width}") for width in (1, 2, 4, 8)}
SIGNED: dict[int, np.dtype[Any]] = {width: np.dtype(f"i{width}") for width in (1, 2, 4, 8)}
FLOAT: dict[str, np.dtype[Any]] = {f"f{8 * width}": np.dtype(f"f{width}") for width in (2, 4, 8)}
PACKED = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32", "u16x2": "u16", "s16x2": "s16"}

TYPE_BYTES = {
    **{f"{kind}{bits}": bits // 8 for kind in "bus" for bits in (8, 16, 32, 64)},
    "f16": 2, "bf16": 2, "f32": 4, "tf32": 4, "f64": 8,
    "f16x2": 4, "bf16x2": 4, "f32x2": 8, "u16x2": 4, "s16x2": 4, "pred": 1,
}  # fmt: skip


def is_float(kind: str) -> bool:
    return "f" in kind


def dtype_of(kind: str) -> np.dtype[Any]:
    """The numpy type that arithmetic on `kind` views its bits as; bf16 keeps its bits."""
    if kind == "pred":
        return np.dtype(bool)
    if kind in FLOAT:
        return FLOAT[kind]
    return (SIGNED if kind.startswith("s") else UNSIGNED)[TYPE_BYTES[kind]]


def widen_bf16(bits: Array) -> Array:
    """bf16 bits (uint16) as float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow_bf16(values: Array, mode: str = "rn") -> Array:
    """float32 as bf16 bits (uint16), to nearest even or (`rz`) towards zero."""
    bits = values.astype(np.float32, copy=False).view(np.uint32)
    if mode == "rz":
        rounded = bits >> np.uint32(16)
    else:
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FFF), rounded).astype(np.uint16)


def float_in(kind: str) -> Callable[[Array], Array]:
    """A function from register bits to float values: bf16 becomes float32, packed types are flattened."""
    kind = PACKED.get(kind, kind)
    if kind == "bf16":
        return lambda bits: widen_bf16(np.ascontiguousarray(bits).view(np.uint16))
    wanted = FLOAT["f32" if kind == "tf32" else kind]
    return lambda bits: bits.view(wanted)


def float_out(kind: str) -> Callable[[Array], Array]:
    """A function from computed values to register bits, rounded to `kind`."""
    bits = UNSIGNED[TYPE_BYTES[kind]]
    element = PACKED.get(kind, kind)
    if element == "bf16":
        return lambda values: narrow_bf16(values).view(bits)
    wanted = FLOAT["f32" if element == "tf32" else element]
    return lambda values: values.astype(wanted, copy=False).view(bits)


_TINY = np.float32(1.1754943508222875e-38)


def flush(values: Array) -> Array:
    """`.ftz`: subnormal float32 becomes zero of the same sign."""
    small = np.abs(values) < _TINY
    return np.where(small, np.copysign(np.float32(0), values), values) if small.any() else values


def saturate(values: Array) -> Array:
    """`.sat` on floats: clamp to [0, 1], NaN to 0."""
    return np.where(np.isnan(values), 0, np.clip(values, 0, 1)).astype(values.dtype)


def sum_to_odd(a: Array, b: Array) -> Array:
    """float64 `a + b` rounded to odd, so that rounding the sum again to a narrower type gives the correct result."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    bits = total.view(np.int64)
    fix = (error != 0) & ((bits & 1) == 0) & np.isfinite(total)
    away = (error > 0) == (total > 0)
    return np.where(fix, bits + np.where(away, 1, -1), bits).view(np.float64)


def round_to(values: Array, dtype: np.dtype[Any], mode: str) -> Array:
    """float64 (or wider than `dtype`) to `dtype` with rounding `rn`, `rz`, `rm` (down) or `rp` (up)."""
    near = values.astype(dtype)
    if mode in ("rn", "rna"):
        return near
    back = near.astype(values.dtype)
    too_high, too_low = back > values, back < values
    if mode == "rm":
        return np.where(too_high, np.nextafter(near, dtype.type(-np.inf)), near)
    if mode == "rp":
        return np.where(too_low, np.nextafter(near, dtype.type(np.inf)), near)
    past = np.where(values > 0, too_high, too_low)
    return np.where(past, np.nextafter(near, dtype.type(0)), near)


def fma32(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """float32 fused multiply-add with one rounding: the product is exact in float64, the sum is rounded once."""
    product, addend = a.astype(np.float64) * b, c.astype(np.float64)
    if mode == "rn":
        total = product + addend
        halfway = (total.view(np.uint64) & np.uint64(0x1FFFFFFF)) == np.uint64(0x10000000)
        if not halfway.any():
            return total.astype(np.float32)
    return round_to(sum_to_odd(product, addend), FLOAT["f32"], mode)


def fma64(a: Array, b: Array, c: Array) -> Array:
    """float64 fused multiply-add by error-free products and sums; within one unit in the last place."""
    plain = a * b + c
    split = 134217729.0
    high_a, high_b = a * split, b * split
    high_a, high_b = high_a - (high_a - a), high_b - (high_b - b)
    low_a, low_b = a - high_a, b - high_b
    product = a * b
    error = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b
    total = product + c
    part = total - product
    error = error + ((product - (total - part)) + (c - part))
    return np.where(np.isfinite(plain) & np.isfinite(error), total + error, plain)


def multiply_high(a: Array, b: Array) -> Array:
    """The upper 64 bits of a uint64 product."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> shift, b & low, b >> shift
    middle = a1 * b0 + (a0 * b0 >> shift)
    other = (middle & low) + a0 * b1
    return a1 * b1 + (middle >> shift) + (other >> shift)


def population(bits: Array) -> Array:
    """How many bits are set, per element, as uint32."""
    count = np.unpackbits(np.ascontiguousarray(bits).view(np.uint8).reshape(len(bits), -1), axis=1).sum(axis=1)
    return count.astype(np.uint32)


def top_bit(bits: Array) -> Array:
    """Position of the highest set bit as int64; -1 for zero."""
    rest = bits.astype(np.uint64)
    position = np.zeros(len(bits), np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        high = rest >> np.uint64(step)
        move = high != 0
        position += np.where(move, step, 0)
        rest = np.where(move, high, rest)
    return np.where(bits != 0, position, -1)
