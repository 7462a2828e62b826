"""Loads, stores, atomics and asynchronous copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from warplens.simulate.batch_state import Group, Reader, State, Step
from warplens.simulate.cycle_clock import ATOMIC_SHARED_LATENCY, CONSTANT_LATENCY, SHARED_LATENCY
from warplens.simulate.decode_site import DecodeSite, builds
from warplens.simulate.global_memory import GLOBAL_BASE, LOCAL_WINDOW, SHARED_WINDOW
from warplens.simulate.numeric import TYPE_BYTES, UNSIGNED, Array, dtype_of, float_in, float_out, is_float

_WINDOW = 1 << 32
_FLAT = ("global", "const", "param")


def space_of(site: DecodeSite, named: str | None) -> str:
    """The state space of an access; `generic` if the instruction names none."""
    for word in site.modifiers:
        base = word.partition("::")[0]
        if base in ("shared", "local", "global", "const", "param"):
            return named if base == "param" and named == "local" else base
    return named if named is not None and site.opcode != "cp" else "generic"


def locate(
    S: State, g: Group, site: DecodeSite, address: Array, width: int, space: str, span: int = 0
) -> tuple[Array, Array]:
    """The memory as words of `width` bytes and the index of each `address`, after checking `span` bytes."""
    span = span or width
    low, high = int(address.min()), int(address.max()) + span
    if span > 1 and int(np.bitwise_or.reduce(address)) & (span - 1):
        _fault(S, g, site, address, (address & (span - 1)) != 0, f"is not aligned to {span} bytes", space)
    if space == "generic":
        if low >= SHARED_WINDOW and high <= SHARED_WINDOW + _WINDOW:
            return locate(S, g, site, address - SHARED_WINDOW, width, "shared", span)
        if low >= LOCAL_WINDOW and high <= LOCAL_WINDOW + _WINDOW:
            return locate(S, g, site, address - LOCAL_WINDOW, width, "local", span)
        space = "global"
    if space == "param" and high < GLOBAL_BASE:  # a call's parameter, reached through a register
        space = "local"
    shift = width.bit_length() - 1
    if space in _FLAT:
        if not S.memory.holds(low, high):
            bad = S.memory.outside(address.view(np.uint64), span)
            if bad.any():
                _fault(S, g, site, address, bad, "", "global")
        return S.memory.words(width), (address - GLOBAL_BASE) >> shift
    size = S.shared_size if space == "shared" else S.local_size
    if low < 0 or high > size:
        bad = (address < 0) | (address + span > size)
        _fault(S, g, site, address, bad, f"is outside the {size} bytes of {space} memory", space)
    if space == "shared":
        base = S.shared_base if g.full else S.shared_base[g.index]
        return S.shared_words(width), (address + base) >> shift
    lane = S.lane if g.full else g.index
    return S.local_words(width), (address + lane * S.local_stride) >> shift


def _fault(S: State, g: Group, site: DecodeSite, address: Array, bad: Array, problem: str, space: str) -> None:
    first = int(np.flatnonzero(bad)[0])
    at = int(address[first])
    lane = first if g.full else int(g.index[first])
    detail = problem or f"is outside memory: {S.memory.describe(at)}"
    raise site.error(f"{space} address {at:#x} of {S.name(lane)} {detail}")


def _by_space(S: State, g: Group, address: Array, space: str) -> Iterator[tuple[Group, Array]]:
    """Divide generic addresses by state space: one group and its addresses per space."""
    if space == "generic" and len(address):
        low, high = int(address.min()), int(address.max())
        if (low < SHARED_WINDOW <= high) or (low < LOCAL_WINDOW <= high):
            kind = (address >= SHARED_WINDOW).astype(int) + (address >= LOCAL_WINDOW)
            for value in np.unique(kind):
                chosen = np.flatnonzero(kind == value)
                yield _some(S, g, chosen), address[chosen]
            return
    yield g, address


def _gather(reader: Reader) -> Callable[[State, Group], Array]:
    return lambda S, g: reader(S.R) if g.full else reader(S.R)[g.index]


def _latency(space: str) -> Callable[[State, Group], Array | int]:
    if space in ("shared", "local"):
        return lambda S, g: SHARED_LATENCY
    if space in ("const", "param"):
        return lambda S, g: CONSTANT_LATENCY

    def from_memory(S: State, g: Group) -> Array:
        S.loads += np.uint64(1)
        return S.clock.global_latency(S.global_warp, S.loads)

    return from_memory


@builds("ld", "ldu")
def _ld(site: DecodeSite) -> Step:
    reader, named = site.address(site.need(2)[1])
    space, kind = space_of(site, named), site.kind
    width = TYPE_BYTES[kind]
    targets = site.vector(site.operands[0])
    puts = [site.put(text, kind) for text in targets]
    addresses = _gather(reader)
    total = width * len(targets)
    site.latency = _latency(space)

    def step(S: State, g: Group) -> None:
        for group, address in _by_space(S, g, addresses(S, g), space):
            words, index = locate(S, group, site, address, width, space, total)
            values = [words.take(index + k if k else index) for k in range(len(puts))]
            for put, value in zip(puts, values, strict=True):
                put(S, group, value)

    return step


@builds("st")
def _st(site: DecodeSite) -> Step:
    reader, named = site.address(site.need(2)[0])
    space, kind = space_of(site, named), site.kind
    width = TYPE_BYTES[kind]
    sources = [_gather(site.read(text, f"b{8 * width}")) for text in site.vector(site.operands[1])]
    addresses = _gather(reader)
    total = width * len(sources)

    def step(S: State, g: Group) -> None:
        for group, address in _by_space(S, g, addresses(S, g), space):
            words, index = locate(S, group, site, address, width, space, total)
            for k, source in enumerate(sources):
                words[index + k if k else index] = source(S, group)

    return step


def _combine(site: DecodeSite, name: str, kind: str) -> Callable[[Array, Array, Array], Array]:
    """The function `new = f(old, b, c)` on register bits."""
    if is_float(kind):
        view, back = float_in(kind), float_out(kind)
        functions = {"add": np.add, "min": np.fmin, "max": np.fmax}
        if name in functions:
            function = functions[name]
            return lambda old, b, c: back(function(view(old), view(b)))
        if name != "exch":
            raise site.unknown()
    dtype = dtype_of(kind)
    simple: dict[str, Callable[[Array, Array, Array], Array]] = {
        "add": lambda old, b, c: old + b,
        "and": lambda old, b, c: old & b,
        "or": lambda old, b, c: old | b,
        "xor": lambda old, b, c: old ^ b,
        "exch": lambda old, b, c: b,
        "min": lambda old, b, c: np.minimum(old.view(dtype), b.view(dtype)).view(old.dtype),
        "max": lambda old, b, c: np.maximum(old.view(dtype), b.view(dtype)).view(old.dtype),
        "inc": lambda old, b, c: np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1)),
        "dec": lambda old, b, c: np.where((old == 0) | (old > b), b, old - old.dtype.type(1)),
        "cas": lambda old, b, c: np.where(old == b, c, old),
    }
    if name not in simple:
        raise site.unknown()
    return simple[name]


def _turns(index: Array) -> Iterator[Array | slice]:
    """Divide lanes into turns without repeated addresses: the n-th lane of an address is in the n-th turn."""
    order = np.argsort(index, kind="stable")
    places = index[order]
    first = np.concatenate(([True], places[1:] != places[:-1]))
    if first.all():
        yield slice(None)
        return
    position = np.arange(len(order))
    rank = position - np.maximum.accumulate(np.where(first, position, 0))
    by_rank = np.argsort(rank, kind="stable")
    yield from np.split(order[by_rank], np.flatnonzero(np.diff(rank[by_rank])) + 1)


_ATOMICS = ("add", "and", "or", "xor", "exch", "min", "max", "inc", "dec", "cas")


@builds("atom", "red")
def _atom(site: DecodeSite) -> Step:
    """Lanes with the same address execute one after the other in lane order, all others at once."""
    returns = site.opcode == "atom"
    name = next((word for word in site.modifiers if word in _ATOMICS), "")
    kind = site.kind
    operands = site.need(3 if returns else 2)[1 if returns else 0 :]
    if not name or operands[1].startswith("{"):
        raise site.unknown()
    reader, named = site.address(operands[0])
    space = space_of(site, named)
    width = TYPE_BYTES[kind]
    bits = f"b{8 * width}"
    addresses, b = _gather(reader), _gather(site.read(operands[1], bits))
    c = _gather(site.read(operands[2], bits)) if name == "cas" else b
    combine = _combine(site, name, kind)
    put = site.put(site.operands[0], bits) if returns else None
    if returns:
        site.latency = (lambda S, g: ATOMIC_SHARED_LATENCY) if space == "shared" else _latency(space)

    def step(S: State, g: Group) -> None:
        for group, address in _by_space(S, g, addresses(S, g), space):
            words, index = locate(S, group, site, address, width, space)
            left, right = b(S, group), c(S, group)
            old = np.empty(len(index), UNSIGNED[width])
            for turn in _turns(index):
                at = index[turn]
                old[turn] = words[at]
                words[at] = combine(old[turn], left[turn], right[turn])
            if put is not None:
                put(S, group, old)

    return step


@builds("cp")
def _cp(site: DecodeSite) -> Step:
    """`cp.async` copies immediately, and notes when the bytes would have arrived, for `wait_group` to stall on."""
    if site.modifiers[:1] != ("async",) or "bulk" in site.has or "mbarrier" in site.has:
        raise site.unknown()
    if "commit_group" in site.has:
        return _commit
    if "wait_group" in site.has or "wait_all" in site.has:
        return _wait(int(site.need(1)[0], 0) if "wait_group" in site.has else 0, "wait_all" in site.has)
    operands = site.need(3)
    target, _ = site.address(operands[0])
    source, _ = site.address(operands[1])
    size = int(operands[2], 0)
    extra = operands[3] if len(operands) > 3 and not operands[3].startswith("%policy") else None
    if "L2::cache_hint" in site.has and len(operands) == 4:
        extra = None
    used = site.read(extra, "u32") if extra is not None and not _is_predicate(site, extra) else None
    ignore = site.read(extra, "pred") if extra is not None and used is None else None
    unit = 4 if size % 4 == 0 else size
    to, start = _gather(target), _gather(source)

    def step(S: State, g: Group) -> None:
        there, here = to(S, g), start(S, g)
        words, index = locate(S, g, site, there, unit, "shared", size)
        if used is not None:
            wanted = used(S.R)
        elif ignore is not None:
            wanted = np.where(ignore(S.R), np.uint32(0), np.uint32(size))
        else:
            wanted = np.full(S.lanes, size, np.uint32)
        wanted = wanted if g.full else wanted[g.index]
        lanes = np.flatnonzero(wanted)
        for k in range(size // unit):
            words[index + k] = 0
            take = lanes if k == 0 else np.flatnonzero(wanted > k * unit)
            if len(take):
                every = len(take) == len(here)
                part = g if every else _some(S, g, take)
                source_words, place = locate(S, part, site, (here if every else here[take]) + k * unit, unit, "global")
                words[(index if every else index[take]) + k] = source_words[place]
        S.loads += np.uint64(1)
        done = S.cycles + S.clock.global_latency(S.global_warp, S.loads)
        np.maximum(S.copies_open, done, out=S.copies_open)

    return step


def _is_predicate(site: DecodeSite, text: str) -> bool:
    slot = site.scope.slot(text.lstrip("!"))
    return slot is not None and site.registers.widths[slot] == 0


def _some(S: State, g: Group, take: Array) -> Group:
    """Some lanes of a group, by their places among its lanes."""
    mask = np.zeros(S.lanes, bool)
    mask[take if g.full else g.index[take]] = True
    return Group(mask, len(take), False)


def _commit(S: State, g: Group) -> None:
    S.copy_groups = [*S.copy_groups[-15:], S.copies_open.copy()]


def _wait(pending: int, everything: bool) -> Step:
    def step(S: State, g: Group) -> None:
        if everything:
            S.wait_until(g, S.copies_open)
        elif len(S.copy_groups) > pending:
            S.wait_until(g, S.copy_groups[-1 - pending])

    return step


@builds(
    "membar", "fence", "prefetch", "prefetchu", "discard", "applypriority", "griddepcontrol", "setmaxnreg", "pmevent",
    "brkpt", "nanosleep",
)  # fmt: skip
def _nothing(site: DecodeSite) -> Step:
    """No effect on a machine that executes in order, except that nanosleep advances the clock."""
    if site.opcode == "nanosleep":
        time = site.read(site.need(1)[0], "u32")
        return lambda S, g: S.advance(g, int(int(time(S.R)[g.mask].max()) * S.clock.mhz / 1000))
    return lambda S, g: None


@builds("createpolicy")
def _policy(site: DecodeSite) -> Step:
    zero = site.read("0", "b64")
    return site.assign(site.need(1)[0], "b64", zero)
