"""Instructions between the lanes of a warp, and tensor-core instructions whose fragments are spread over them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from warplens.simulate.batch_state import WARP, Group, State, Step
from warplens.simulate.cycle_clock import SHARED_LATENCY
from warplens.simulate.decode_site import DecodeSite, builds
from warplens.simulate.memory_access import locate, space_of
from warplens.simulate.numeric import FLOAT, SIGNED, TYPE_BYTES, UNSIGNED, Array, dtype_of, is_float, widen_bf16

SYNCHRONISING = frozenset({"shfl", "vote", "match", "redux", "elect", "ldmatrix", "stmatrix", "mma", "bar.warp"})
"""Opcodes that wait until all participating lanes have arrived."""


def member_operand(site: DecodeSite) -> str | None:
    """The operand with the mask of participating lanes; None if all lanes must participate."""
    if site.opcode in ("ldmatrix", "stmatrix", "mma") or "sync" not in site.has:
        return None
    return site.operands[-1]


def lane_bits(mask: Array) -> Array:
    """One uint32 per warp with a bit for each lane in `mask`."""
    packed = np.packbits(mask.reshape(-1, WARP), axis=1, bitorder="little")
    return packed.view(np.uint32)[:, 0]


def _targets(site: DecodeSite) -> list[str]:
    return [part.strip() for part in site.operands[0].split("|")]


@builds("shfl")
def _shfl(site: DecodeSite) -> Step:
    targets = _targets(site)
    operands = site.need(4)
    a, b, c = (site.read(text, "b32") for text in operands[1:4])
    mode = site.word(("up", "down", "bfly", "idx"))
    write = site.put(targets[0], "b32")
    write_p = site.put(targets[1], "pred") if len(targets) > 1 else None

    def step(S: State, g: Group) -> None:
        lane = S.lane % WARP
        control = c(S.R).astype(np.int64)
        bound, segment = control & 31, control >> 8 & 31
        distance = (b(S.R) & np.uint32(31)).astype(np.int64)
        high = (lane & segment) | (bound & ~segment)
        if mode == "up":
            source = lane - distance
        elif mode == "down":
            source = lane + distance
        elif mode == "bfly":
            source = lane ^ distance
        else:
            source = (lane & segment) | (distance & ~segment)
        inside = source >= high if mode == "up" else source <= high
        source = np.where(inside, source, lane)
        values = a(S.R)[S.lane - lane + source]
        write(S, g, values if g.full else values[g.index])
        if write_p is not None:
            write_p(S, g, inside if g.full else inside[g.index])

    return step


@builds("vote")
def _vote(site: DecodeSite) -> Step:
    p = site.read(site.need(2)[1], "pred")
    mode = site.word(("all", "any", "uni", "ballot"))
    members = site.read(site.operands[2], "u32") if "sync" in site.has else None
    put = site.put(site.operands[0], "b32" if mode == "ballot" else "pred")

    def step(S: State, g: Group) -> None:
        # Lanes of one warp may have different member masks; each sees only its own members.
        own = S.per_lane(lane_bits(g.mask)) & (members(S.R) if members is not None else np.uint32(0xFFFFFFFF))
        yes = S.per_lane(lane_bits(p(S.R) & g.mask)) & own
        if mode == "ballot":
            result: Array = yes
        elif mode == "all":
            result = yes == own
        elif mode == "any":
            result = yes != 0
        else:
            result = (yes == 0) | (yes == own)
        put(S, g, result if g.full else result[g.index])

    return step


def _named(S: State, g: Group, members: Array) -> Array:
    """For every lane, which lanes of its warp participate with it: (warps, 32, 32) bools."""
    lanes = (members.reshape(-1, WARP, 1) >> np.arange(WARP, dtype=np.uint32)) & np.uint32(1) != 0
    return lanes & g.mask.reshape(-1, 1, WARP)


@builds("activemask")
def _activemask(site: DecodeSite) -> Step:
    put = site.put(site.need(1)[0], "b32")

    def step(S: State, g: Group) -> None:
        lanes = S.per_lane(lane_bits(g.mask))
        put(S, g, lanes if g.full else lanes[g.index])

    return step


@builds("match")
def _match(site: DecodeSite) -> Step:
    kind = site.kind
    targets = _targets(site)
    a = site.read(site.need(3)[1], kind)
    members = site.read(site.operands[2], "u32")
    write = site.put(targets[0], "b32")
    write_p = site.put(targets[1], "pred") if len(targets) > 1 else None
    all_of_them = "all" in site.has

    def step(S: State, g: Group) -> None:
        named = _named(S, g, members(S.R))
        values = a(S.R).reshape(-1, WARP)
        equal = (values[:, :, None] == values[:, None, :]) & named
        bits = np.packbits(equal, axis=2, bitorder="little").view(np.uint32)[:, :, 0].reshape(-1)
        if all_of_them:
            same = (equal == named).all(axis=2).reshape(-1)
            bits = np.where(same, bits, np.uint32(0))
            if write_p is not None:
                write_p(S, g, same if g.full else same[g.index])
        write(S, g, bits if g.full else bits[g.index])

    return step


@builds("redux")
def _redux(site: DecodeSite) -> Step:
    kind = site.kind
    d, a_text, m_text = site.need(3)[:3]
    a, members = site.read(a_text, kind), site.read(m_text, "u32")
    name = site.word(_REDUCE)
    function, start = _REDUCE[name]
    put = site.put(d, kind)
    dtype = dtype_of(kind)
    if name in ("min", "max"):
        limits = np.finfo(dtype) if is_float(kind) else np.iinfo(dtype)
        start = limits.max if name == "min" else limits.min

    def step(S: State, g: Group) -> None:
        named = _named(S, g, members(S.R))
        values = np.where(named, a(S.R).reshape(-1, 1, WARP), dtype.type(start))
        lanes = function.reduce(values, axis=2).astype(dtype).reshape(-1)
        put(S, g, lanes if g.full else lanes[g.index])

    return step


_REDUCE: dict[str, tuple[np.ufunc, int]] = {
    "add": (np.add, 0),
    "min": (np.minimum, 0),
    "max": (np.maximum, 0),
    "and": (np.bitwise_and, 0xFFFFFFFF),
    "or": (np.bitwise_or, 0),
    "xor": (np.bitwise_xor, 0),
}


@builds("elect")
def _elect(site: DecodeSite) -> Step:
    targets = _targets(site)
    members = site.read(site.need(2)[1], "u32")
    write = site.put(targets[0], "b32")
    write_p = site.put(targets[1], "pred") if len(targets) > 1 else None

    def step(S: State, g: Group) -> None:
        leader = _named(S, g, members(S.R)).argmax(axis=2).reshape(-1).astype(np.uint32)
        chosen = leader == (S.lane % WARP)
        write(S, g, leader if g.full else leader[g.index])
        if write_p is not None:
            write_p(S, g, chosen if g.full else chosen[g.index])

    return step


@builds("ldmatrix", "stmatrix")
def _ldmatrix(site: DecodeSite) -> Step:
    """8x8 matrices of 16-bit values: lane 8j+i holds the address of row i of matrix j."""
    loads = site.opcode == "ldmatrix"
    operands = site.need(2)
    registers = site.vector(operands[0] if loads else operands[1])
    reader, named = site.address(operands[1] if loads else operands[0])
    if "m8n8" not in site.has or "b16" not in site.has:
        raise site.unknown()
    space = space_of(site, named)
    transposed = "trans" in site.has
    count = len(registers)
    puts = [site.put(text, "b32") for text in registers] if loads else []
    sources = [] if loads else [site.read(text, "b32") for text in registers]
    if loads:
        site.latency = lambda S, g: SHARED_LATENCY + 2 * count

    def turned(tile: Array) -> Array:
        if not transposed:
            return tile
        return np.ascontiguousarray(tile.view(np.uint16).reshape(-1, 8, 8).transpose(0, 2, 1)).view(np.uint32)

    def step(S: State, g: Group) -> None:
        # Only the lanes that hold the address of a row have a valid one.
        naming = g.mask & (S.lane % WARP < 8 * count)
        group = Group(naming, int(np.count_nonzero(naming)), False)
        words, index = locate(S, group, site, reader(S.R)[group.index], 4, space, 16)
        rows = index.reshape(-1, count, 8)
        warps = group.index.reshape(-1, 8 * count)[:, 0] // WARP
        for j in range(count):
            cells = rows[:, j, :, None] + np.arange(4)
            if loads:
                tile = turned(words.take(cells))
                per_warp = np.zeros((S.warps, WARP), np.uint32)
                per_warp[warps] = tile.reshape(-1, WARP)
                lanes = per_warp.reshape(-1)
                puts[j](S, g, lanes if g.full else lanes[g.index])
            else:
                tile = turned(np.ascontiguousarray(sources[j](S.R).reshape(-1, 8, 4)[warps]))
                words[cells] = tile.reshape(cells.shape)

    return step


@builds("mma")
def _mma(site: DecodeSite) -> Step:
    """`mma.sync.m16n8k*`: every register of A and B is a tile of 8 rows of 16 bytes, spread over the warp."""
    shape = next((word for word in site.modifiers if word.startswith("m16n8k")), None)
    if shape is None or len(site.kinds) < 4:
        raise site.unknown()
    d_kind, a_kind, b_kind, c_kind = site.kinds[-4:]
    if a_kind not in _ELEMENT or b_kind not in _ELEMENT or d_kind not in ("f32", "f16", "s32"):
        raise site.unknown()
    names = [site.vector(text) for text in site.need(4)[:4]]
    columns = int(shape[6:]) * TYPE_BYTES[a_kind] // 16
    if len(names[1]) != 2 * columns or len(names[2]) != columns:
        raise site.unknown("has a number of registers that the interpreter does not support")
    a = [site.read(text, "b32") for text in names[1]]
    b = [site.read(text, "b32") for text in names[2]]
    c = [site.read(text, "b32") for text in names[3]]
    puts = [site.put(text, "b32") for text in names[0]]
    view_a, view_b = _ELEMENT[a_kind], _ELEMENT[b_kind]
    total = np.dtype(np.int32) if d_kind == "s32" else FLOAT["f32"]

    def accumulators(S: State) -> Array:
        if c_kind == "f16":
            rows = [reader(S.R).view(np.float16).reshape(-1, 8, 8).astype(np.float32) for reader in c]
        else:
            pairs = [(c[i](S.R), c[i + 1](S.R)) for i in (0, 2)]
            rows = [np.stack(pair, axis=1).view(total).reshape(-1, 8, 8) for pair in pairs]
        return np.concatenate(rows, axis=1)

    def step(S: State, g: Group) -> None:
        tiles = [view_a(reader(S.R)) for reader in a]
        left = np.concatenate([np.concatenate(tiles[0::2], axis=2), np.concatenate(tiles[1::2], axis=2)], axis=1)
        right = np.concatenate([view_b(reader(S.R)) for reader in b], axis=2)
        result = accumulators(S) + np.matmul(left, right.transpose(0, 2, 1)).astype(total)
        if d_kind == "f16":
            halves = result.astype(np.float16).reshape(-1, 2, WARP, 2)
            values = [np.ascontiguousarray(halves[:, i]).view(np.uint32).reshape(-1) for i in (0, 1)]
        else:
            bits = np.ascontiguousarray(result).view(np.uint32).reshape(-1, 2, WARP, 2)
            values = [np.ascontiguousarray(bits[:, i, :, j]).reshape(-1) for i in (0, 1) for j in (0, 1)]
        for put, value in zip(puts, values, strict=True):
            put(S, g, value if g.full else value[g.index])

    return step


def _tile(dtype: np.dtype[np.generic]) -> Callable[[Array], Array]:
    wanted = np.float32 if dtype.kind == "f" else np.int32
    return lambda bits: np.ascontiguousarray(bits).view(dtype).reshape(-1, 8, 16 // dtype.itemsize).astype(wanted)


_ELEMENT: dict[str, Callable[[Array], Array]] = {
    "f16": _tile(FLOAT["f16"]),
    "tf32": lambda bits: (bits & np.uint32(0xFFFFE000)).view(np.float32).reshape(-1, 8, 4),
    "bf16": lambda bits: widen_bf16(np.ascontiguousarray(bits).view(np.uint16)).reshape(-1, 8, 8),
    "s8": _tile(SIGNED[1]),
    "u8": _tile(UNSIGNED[1]),
}
