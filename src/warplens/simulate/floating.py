"""Floating-point arithmetic: f16, bf16, f32, f64 and the packed pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from warplens.ptx.syntax import PtxError
from warplens.simulate.batch_state import Reader, Step
from warplens.simulate.decode_site import DecodeSite, builds
from warplens.simulate.numeric import (
    FLOAT,
    PACKED,
    TYPE_BYTES,
    Array,
    float_out,
    flush,
    fma32,
    fma64,
    round_to,
    saturate,
    sum_to_odd,
)

_ROUNDINGS = ("rn", "rz", "rm", "rp")


def rounding(site: DecodeSite) -> str:
    return next((word for word in site.modifiers if word in _ROUNDINGS), "rn")


def _finish(site: DecodeSite, compute: Reader) -> Step:
    """Round to the instruction's type, apply `.ftz`, `.sat` and `.relu`, and write the register."""
    kind = site.kind
    out = float_out(kind)
    sat, ftz, relu = "sat" in site.has, "ftz" in site.has and kind == "f32", "relu" in site.has

    def value(R: list[Array]) -> Array:
        result = compute(R)
        if relu:
            positive: Array = np.maximum(result, 0)
            result = np.where(np.isnan(result), result, positive.astype(result.dtype))
        if sat:
            result = saturate(result)
        return out(flush(result) if ftz else result)

    return site.assign(site.operands[0], f"b{8 * TYPE_BYTES[kind]}", value)


def _inputs(site: DecodeSite, count: int) -> list[Reader]:
    readers = [site.read_float(text, site.kind) for text in site.need(count + 1)[1 : count + 1]]
    if "ftz" not in site.has or site.kind != "f32":
        return readers
    return [flushed(reader) for reader in readers]


def flushed(reader: Reader) -> Reader:
    """The same with `.ftz`: subnormal numbers are zero."""
    return lambda R: flush(reader(R))


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "min": np.fmin, "max": np.fmax
}  # fmt: skip


def float_binary(site: DecodeSite) -> Step:
    """add, sub, mul, div, min, max."""
    a, b = _inputs(site, 2)
    function = _BINARY[site.opcode]
    kind, mode = site.kind, rounding(site)
    if site.opcode in ("min", "max"):
        if "NaN" in site.has:
            function = np.minimum if site.opcode == "min" else np.maximum
        if "abs" in site.has:
            return _finish(site, lambda R: function(np.abs(a(R)), np.abs(b(R))))
    if mode == "rn" or site.opcode in ("min", "max"):
        return _finish(site, lambda R: function(a(R), b(R)))
    if PACKED.get(kind, kind) != "f32":
        raise _unsupported_rounding(site)
    sign = -1.0 if site.opcode == "sub" else 1.0
    exact = sum_to_odd if site.opcode in ("add", "sub") else function

    def compute(R: list[Array]) -> Array:
        return round_to(exact(a(R).astype(np.float64), sign * b(R).astype(np.float64)), FLOAT["f32"], mode)

    return _finish(site, compute)


def _unsupported_rounding(site: DecodeSite) -> PtxError:
    return site.unknown(f"rounds with .{rounding(site)}, which the interpreter only supports for f32")


@builds("fma")
def float_fma(site: DecodeSite) -> Step:
    """fma, and mad on floats."""
    a, b, c = _inputs(site, 3)
    kind, mode = site.kind, rounding(site)
    if PACKED.get(kind, kind) == "f32":
        return _finish(site, lambda R: fma32(a(R), b(R), c(R), mode))
    if mode != "rn":
        raise _unsupported_rounding(site)
    if kind == "f64":
        return _finish(site, lambda R: fma64(a(R), b(R), c(R)))
    if PACKED.get(kind, kind) == "bf16":
        return _finish(site, lambda R: fma32(a(R), b(R), c(R)))
    return _finish(
        site, lambda R: sum_to_odd(a(R).astype(np.float64) * b(R).astype(np.float64), c(R).astype(np.float64))
    )


_UNARY: dict[str, Callable[[Array], Array]] = {
    "abs": np.abs,
    "neg": np.negative,
    "sqrt": np.sqrt,
    "rcp": lambda x: np.divide(1, x, dtype=x.dtype),
    "rsqrt": lambda x: np.divide(1, np.sqrt(x), dtype=x.dtype),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


@builds("sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def float_unary(site: DecodeSite) -> Step:
    """Instructions with one operand."""
    kind, function, mode = site.kind, _UNARY[site.opcode], rounding(site)
    (a,) = _inputs(site, 1)
    if mode != "rn" and site.opcode not in ("abs", "neg"):
        if kind != "f32":
            raise _unsupported_rounding(site)
        return _finish(site, lambda R: round_to(function(a(R).astype(np.float64)), FLOAT["f32"], mode))
    return _finish(site, lambda R: function(a(R)))


@builds("copysign")
def _copysign(site: DecodeSite) -> Step:
    a, b = (site.read_float(text, site.kind) for text in site.need(3)[1:3])
    return _finish(site, lambda R: np.copysign(b(R), a(R)))


@builds("testp")
def _testp(site: DecodeSite) -> Step:
    kind = site.kind
    a = site.read(site.need(2)[1], kind)
    tiny = np.finfo(FLOAT[kind]).tiny
    tests: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda x: ~np.isnan(x),
        "notanumber": np.isnan,
        "normal": lambda x: np.isfinite(x) & (np.abs(x) >= tiny),
        "subnormal": lambda x: (x != 0) & (np.abs(x) < tiny),
    }
    test = tests[site.word(tests)]
    return site.assign(site.operands[0], "pred", lambda R: test(a(R)))
