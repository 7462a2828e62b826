"""mov, cvt, cvta, comparisons and selections."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from warplens.simulate.batch_state import Group, Reader, State, Step
from warplens.simulate.decode_site import DecodeSite, builds
from warplens.simulate.floating import flushed
from warplens.simulate.global_memory import LOCAL_WINDOW, SHARED_WINDOW
from warplens.simulate.numeric import (
    FLOAT,
    TYPE_BYTES,
    UNSIGNED,
    Array,
    dtype_of,
    float_in,
    flush,
    is_float,
    narrow_bf16,
    round_to,
    saturate,
)

_CLOCKS = {"clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi"}


@builds("mov")
def _mov(site: DecodeSite) -> Step:
    d, a = site.need(2)[:2]
    if a.startswith("%") and a[1:] in _CLOCKS and site.scope.slot(a) is None:
        return _read_clock(site, d, a[1:])
    kind = "pred" if "pred" in site.has else site.kind if "b128" not in site.has else "b128"
    if d.startswith("{") or a.startswith("{"):
        return _repack(site, d, a, kind)
    if kind == "b128":
        raise site.unknown("is only known with a vector operand")
    kind = kind if kind == "pred" else f"b{8 * TYPE_BYTES[kind]}" if kind != "f32" else "f32"
    reader = site.read(a, kind)
    return site.assign(d, kind, reader)


def _read_clock(site: DecodeSite, d: str, name: str) -> Step:
    """The warp's clock, in every lane."""
    high = name.endswith("_hi")
    timer = name.startswith("globaltimer")
    kind = "u64" if name in ("clock64", "globaltimer") else "u32"
    dtype = dtype_of(kind)
    put = site.put(d, kind)

    def step(S: State, g: Group) -> None:
        value = S.clock.nanoseconds(S.cycles) if timer else S.cycles + S.clock.offset(S.sm)
        lanes = S.per_lane((value >> 32 if high else value).astype(dtype))
        put(S, g, lanes if g.full else lanes[g.index])

    return step


def _repack(site: DecodeSite, d: str, a: str, kind: str) -> Step:
    """`mov.b32 {%rs1, %rs2}, %r1` and back: parts are little-endian fields of the combined value."""
    total = 16 if kind == "b128" else TYPE_BYTES[kind]
    if d.startswith("{") and a.startswith("{"):
        raise site.unknown("between two vectors is not an instruction that the interpreter knows")
    parts = site.vector(d if d.startswith("{") else a)
    width = total // len(parts)
    if width not in UNSIGNED or total == 16:
        raise site.unknown(f"of {len(parts)} parts is not an instruction that the interpreter knows")
    part, combined = f"b{8 * width}", f"b{8 * total}"
    dtype, wide = UNSIGNED[width], UNSIGNED[total]
    if d.startswith("{"):
        source = site.read(a, combined)
        count = len(parts)

        def field(index: int) -> Reader:
            return lambda R: np.ascontiguousarray(np.ascontiguousarray(source(R)).view(dtype)[index::count])

        # A destination may also be a source, so all parts are extracted before any is written.
        writes = [(site.put(text, part), field(index)) for index, text in enumerate(parts)]

        def split(S: State, g: Group) -> None:
            values = [cut(S.R) for _, cut in writes]
            for (put, _), value in zip(writes, values, strict=True):
                put(S, g, value if g.full else value[g.index])

        return split
    sources = [site.read(text, part) for text in parts]
    shifts = [wide.type(8 * width * index) for index in range(len(parts))]

    def join(R: list[Array]) -> Array:
        result = sources[0](R).astype(wide)
        for source, shift in zip(sources[1:], shifts[1:], strict=True):
            result = result | (source(R).astype(wide) << shift)
        return result

    return site.assign(d, combined, join)


@builds("cvt")
def _cvt(site: DecodeSite) -> Step:
    if len(site.kinds) != 2:
        raise site.unknown()
    to, source = site.kinds
    if to in ("f16x2", "bf16x2"):
        return _pack_pair(site, to)
    value = site.read_float(site.need(2)[1], source) if is_float(source) else site.read(site.operands[1], source)
    if source == "f32" and "ftz" in site.has:
        value = flushed(value)
    mode = next((word for word in site.modifiers if word in _MODES), "")
    if is_float(to):
        return site.assign(site.operands[0], f"b{8 * TYPE_BYTES[to]}", _to_float(site, value, to, mode))
    return site.assign(site.operands[0], to, _to_integer(site, value, source, to, mode))


_MODES = ("rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi")
_INTEGRAL: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _to_integer(site: DecodeSite, value: Reader, source: str, to: str, mode: str) -> Reader:
    dtype = dtype_of(to)
    low, high = (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    if not is_float(source):
        if "sat" not in site.has:
            bits = UNSIGNED[dtype.itemsize]
            return lambda R: value(R).astype(bits)
        start, end = (int(np.iinfo(dtype_of(source)).min), int(np.iinfo(dtype_of(source)).max))
        low, high = max(low, start), min(high, end)
        return lambda R: np.clip(value(R), low, high).astype(dtype)
    to_integral = _INTEGRAL.get(mode, np.trunc)

    def convert(R: list[Array]) -> Array:
        number = to_integral(value(R).astype(np.float64))
        # The largest 64-bit integers are not exact as floats: clamp the float, then insert the exact limit.
        inside = np.clip(number, float(low), float(high))
        result = np.where(np.isnan(inside) | (number >= float(high)), 0, inside).astype(dtype)
        return np.where(number >= float(high), dtype.type(high), result)

    return convert


def _to_float(site: DecodeSite, value: Reader, to: str, mode: str) -> Reader:
    bits = UNSIGNED[TYPE_BYTES[to]]
    sat, ftz = "sat" in site.has, "ftz" in site.has and to == "f32"
    relu = "relu" in site.has
    if to == "tf32":
        return lambda R: _tf32(value(R), relu)
    target: np.dtype[Any] = FLOAT.get(to, np.dtype(np.float32))

    def convert(R: list[Array]) -> Array:
        number = value(R)
        if mode in _INTEGRAL:
            number = _INTEGRAL[mode](number)
        if relu:
            number = np.maximum(number, 0).astype(number.dtype)
        if sat:
            number = saturate(number)
        if to == "bf16":
            return narrow_bf16(number.astype(np.float32), "rz" if mode == "rz" else "rn")
        if mode in ("rz", "rm", "rp") and number.dtype != target:
            if number.dtype.kind in "iu" or number.dtype.itemsize < 4:
                number = number.astype(np.float64)
            number = round_to(number, target, mode)
        number = number.astype(target, copy=False)
        return (flush(number) if ftz else number).view(bits)

    return convert


def _tf32(values: Array, relu: bool) -> Array:
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(values < 0, np.uint32(0), rounded) if relu else rounded


def _pack_pair(site: DecodeSite, to: str) -> Step:
    """`cvt.rn.f16x2.f32 d, high, low`: the first source goes to the upper half."""
    d, high_text, low_text = site.need(3)[:3]
    high, low = site.read(high_text, "f32"), site.read(low_text, "f32")
    mode = "rz" if "rz" in site.has else "rn"
    relu = "relu" in site.has

    def half(values: Array) -> Array:
        values = np.maximum(values, 0) if relu else values
        if to == "bf16x2":
            return narrow_bf16(values, mode)
        return round_to(values, FLOAT["f16"], mode).view(np.uint16)

    return site.assign(
        d, "b32", lambda R: (half(high(R)).astype(np.uint32) << np.uint32(16)) | half(low(R)).astype(np.uint32)
    )


@builds("cvta")
def _cvta(site: DecodeSite) -> Step:
    """Shared and local memory are windows in the generic address space; other spaces need no conversion."""
    d, a = site.need(2)[:2]
    kind = site.kind
    window = SHARED_WINDOW if any(word.startswith("shared") for word in site.has) else 0
    window = LOCAL_WINDOW if "local" in site.has else window
    source = site.read(a, kind)
    if not window or TYPE_BYTES[kind] != 8:
        return site.assign(d, kind, source)
    base = np.uint64(window)
    if "to" in site.has:
        return site.assign(d, kind, lambda R: source(R) - base)
    return site.assign(d, kind, lambda R: source(R) + base)


@builds("isspacep")
def _isspacep(site: DecodeSite) -> Step:
    a = site.read(site.need(2)[1], "u64")
    shared, local = np.uint64(SHARED_WINDOW), np.uint64(LOCAL_WINDOW)
    end = np.uint64(1 << 32)
    tests: dict[str, Reader] = {
        "shared": lambda R: (a(R) >= shared) & (a(R) < shared + end),
        "local": lambda R: (a(R) >= local) & (a(R) < local + end),
        "global": lambda R: a(R) < shared,
    }
    space = site.modifiers[0].partition("::")[0]
    if space not in tests:
        raise site.unknown()
    return site.assign(site.operands[0], "pred", tests[space])


_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip
_UNORDERED = {"equ": "ne", "neu": "eq", "ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}


def _comparison(site: DecodeSite) -> Reader:
    """The result of `a op b`, one bool per lane (two per lane, flattened, for packed types)."""
    name, kind = site.modifiers[0], site.kinds[-1]
    a_text, b_text = site.need(3)[1:3]
    if not is_float(kind):
        kind = "u" + kind[1:] if name in ("lo", "ls", "hi", "hs") else kind
        if name not in _COMPARE:
            raise site.unknown()
        test, a, b = _COMPARE[name], site.read(a_text, kind), site.read(b_text, kind)
        return lambda R: test(a(R), b(R))
    x, y = site.read_float(a_text, kind), site.read_float(b_text, kind)
    if "ftz" in site.has and kind == "f32":
        x, y = flushed(x), flushed(y)
    if name in ("num", "nan"):
        return lambda R: (np.isnan(x(R)) | np.isnan(y(R))) == (name == "nan")
    if name == "ne":  # ordered: false when either is NaN, unlike numpy's !=
        return lambda R: (x(R) < y(R)) | (x(R) > y(R))
    if name == "equ":
        return lambda R: ~((x(R) < y(R)) | (x(R) > y(R)))
    if name in _UNORDERED:
        opposite = _COMPARE[_UNORDERED[name]]
        return lambda R: ~opposite(x(R), y(R))
    if name not in _COMPARE:
        raise site.unknown()
    test = _COMPARE[name]
    return lambda R: test(x(R), y(R))


_BOOLEAN: dict[str, Callable[[Array, Array], Array]] = {
    "and": operator.and_, "or": operator.or_, "xor": operator.xor
}  # fmt: skip


def _combination(site: DecodeSite) -> Callable[[Array, list[Array]], Array]:
    """Combines the result of a comparison with the predicate that the instruction names, if it names one."""
    combine = next((_BOOLEAN[word] for word in site.modifiers[1:] if word in _BOOLEAN), None)
    if combine is None:
        return lambda result, R: result
    c = site.read(site.need(4)[3], "pred")
    return lambda result, R: combine(result, c(R))


@builds("setp")
def _setp(site: DecodeSite) -> Step:
    test, finish = _comparison(site), _combination(site)
    targets = [part.strip() for part in site.operands[0].split("|")]
    packed = site.kinds[-1] in ("f16x2", "bf16x2")

    def outcome(R: list[Array], index: int) -> Array:
        result = test(R)
        if packed:
            result = np.ascontiguousarray(result[index::2])
        elif index:
            result = ~result
        return finish(result, R)

    if len(targets) == 1:
        return site.assign(targets[0], "pred", lambda R: outcome(R, 0))
    first, second = (site.put(text, "pred") for text in targets)

    def both(S: State, g: Group) -> None:
        p, q = outcome(S.R, 0), outcome(S.R, 1)
        first(S, g, p if g.full else p[g.index])
        second(S, g, q if g.full else q[g.index])

    return both


@builds("set")
def _set(site: DecodeSite) -> Step:
    to = site.kinds[0]
    test, finish = _comparison(site), _combination(site)
    if to in ("f16x2", "bf16x2") or site.kinds[-1] in ("f16x2", "bf16x2"):
        raise site.unknown()
    dtype = UNSIGNED[TYPE_BYTES[to]]
    one = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}.get(to, (1 << 8 * dtype.itemsize) - 1)
    yes, no = dtype.type(one), dtype.type(0)

    return site.assign(site.operands[0], f"b{8 * dtype.itemsize}", lambda R: np.where(finish(test(R), R), yes, no))


@builds("selp")
def _selp(site: DecodeSite) -> Step:
    kind = site.kind if is_float(site.kind) else f"b{8 * TYPE_BYTES[site.kind]}"
    d, a_text, b_text, p_text = site.need(4)[:4]
    a, b, p = site.read(a_text, kind), site.read(b_text, kind), site.read(p_text, "pred")
    return site.assign(d, kind, lambda R: np.where(p(R), a(R), b(R)))


@builds("slct")
def _slct(site: DecodeSite) -> Step:
    kind, test_kind = site.kinds
    bits = f"b{8 * TYPE_BYTES[kind]}"
    a, b = site.read(site.need(4)[1], bits), site.read(site.operands[2], bits)
    c = float_in("f32") if test_kind == "f32" else None
    raw = site.read(site.operands[3], "b32" if c else "s32")
    return site.assign(site.operands[0], bits, lambda R: np.where((c(raw(R)) if c else raw(R)) >= 0, a(R), b(R)))
