"""Do atomic operations on few addresses queue up?"""

from __future__ import annotations

from warplens.analyse.code_counts import LEAST_CYCLES, CodeCounts
from warplens.analyse.duration_shapes import MODES
from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, LOW, MEDIUM, SUPPORTED, Finding, Gain
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.load_waits import LATENCY_NS, took
from warplens.analyse.region_purpose import Purpose, words_of
from warplens.wording import integer, percent

CAUSE = "atomics contention"
_WORDS = {"atomic", "atomics", "atom", "atomicadd", "red"}
_LEAST, _LEAST_OWN, _LONG_OWN = 0.1, 0.02, 0.3
_IDLE = 0.5
"""Of the memory's peak: below this share, latency is what loads take."""
_ADVICE = (
    "Combine values first: in registers, by warp (shuffles, __reduce_add_sync), then in shared memory, with one atomic "
    "per block; or give each block a copy."
)
_REFUTED_BY = "The same atomics on addresses of their own take as long."
_LATENCY_CYCLES = 300
_SHARED_CYCLES, _SHARED_TURN = 60, 5
"""What an atomic on shared memory takes, and what each warp of the SM takes of the others' time."""
_LOAD_LATENCIES = 3
"""How many such times a load from memory takes where many are in flight."""
_LONG_QUEUE, _LONG_WAIT = 0.9, 10
_CYCLES = 10
"""Of an instruction of a warp, with others on its scheduler."""


def _judge(e: Evidence) -> Finding:
    in_memory = _in_memory(e)
    return _in_shared_memory(e) or in_memory if in_memory.verdict != SUPPORTED else in_memory


def _in_shared_memory(e: Evidence) -> Finding | None:
    """Atomics on shared memory queue in each SM, and so do loads, which go the same way: these take longer than a
    latency while the memory is not busy."""
    found = {
        name: e.shares[name] * _of_queue(e, name)
        for name, one in e.code.items()
        if name and name in e.shares and e.kinds[name] is not Purpose.WAIT and _only_in_shared_memory(one)
    }
    name = max(found, key=lambda region: found[region], default="")
    if not name or found[name] < (_LONG_OWN if e.memory_busy else _LEAST_OWN):
        return None
    lost = min(sum(found.values()) + _loads_behind(e), e.room)
    if lost < _LEAST:
        return None
    cycles, alone = _median(e, name), _alone_in_shared(e, name)
    return e.supported(
        CAUSE,
        f"Atomic operations on shared memory queue: `{name}` makes {integer(e.code[name].shared_atomics)} of them and "
        f"takes {percent(e.shares[name])} of warp time (median {integer(cycles)} cycles, {integer(alone)} without a "
        "queue), and what waits behind them takes longer as well.",
        _ADVICE,
        e.gain(lost, roof=e.room),
        MEDIUM,
        region=name,
        evidence={"share_of_warp_time": e.shares[name], "median_cycles": cycles, "queued_share": lost},
        refuted_by=_REFUTED_BY,
    )


def _only_in_shared_memory(one: CodeCounts) -> bool:
    """Whether it is known how much an instance does: older recordings do not tell a loop."""
    known = one.fetch_bytes or not one.loads
    return bool(one.shared_atomics and known) and not (one.atomics or one.loops or one.unbounded or one.polls)


def _alone_in_shared(e: Evidence, name: str) -> float:
    """What a region takes whose atomics find no two lanes at an address: warps take turns, and wait for loads before
    it, unless these are waited for where they are made."""
    one = e.code[name]
    each = max(_SHARED_CYCLES, _SHARED_TURN * e.shares[name] * e.warps.per_sm)
    before = [first for first, after in e.followers.items() if name in after and first in e.code]
    awaited = any(e.code[first].loads and took(e, first) < _latency(e) for first in before)
    loads = max(one.load_levels, 1) if one.loads else float(awaited)
    waits = _LOAD_LATENCIES * loads + one.barriers
    return one.shared_atomics * each + waits * _LATENCY_CYCLES + LEAST_CYCLES * one.instructions


def _of_queue(e: Evidence, name: str) -> float:
    return max(1 - _alone_in_shared(e, name) / max(_median(e, name), 1.0), 0.0)


def _loads_behind(e: Evidence) -> float:
    """The share of warp time that loads take beyond a latency each, where the memory could move twice as much."""
    if e.memory_at_most is None or e.memory_at_most > _IDLE:
        return 0.0
    waits = {
        name: 1 - _latency(e) * max(one.load_levels, 1) / took(e, name)
        for name, one in e.code.items()
        if name in e.shares and one.loads and not (one.loops or one.unbounded or one.barriers or one.shared_atomics)
    }
    return sum(e.shares[name] * part for name, part in waits.items() if part > 0)


def _latency(e: Evidence) -> float:
    return LATENCY_NS * e.lives.cycles_per_ns


def _in_memory(e: Evidence) -> Finding:
    found = {name: _held_up(e, name) for name in e.shares if _has_atomics(e, name)}
    share = min(sum(found.values()), 1.0)
    if share < _LEAST:
        return e.refuted(CAUSE, "regions with atomic operations take little time")
    if e.memory_busy:
        return e.refuted(CAUSE, "atomic operations wait behind what the memory moves, which is as much as it can")
    name = max(found, key=lambda region: found[region])
    cycles = _median(e, name)
    # Atomics that queue hold up all other accesses, too; without a queue each would take its latency.
    alone = _cycles_alone(e, name)
    queued = _queued(e, share)
    passed_on = found[name] > e.shares[name]
    if e.code and cycles < alone and not passed_on:
        return e.refuted(CAUSE, f"`{name}` takes {integer(cycles)} cycles, as without a queue")
    waiting = 0.5 if passed_on else _waiting(e, name) if e.code else 1.0
    return e.supported(
        CAUSE,
        f"Atomic operations take {percent(share)} of warp time ({e.named(name)}, median {integer(cycles)} cycles): "
        "warps queue for the same addresses.",
        _ADVICE,
        # In a loop, nothing says how many of the instructions are atomics, or how long loads beside them take.
        _gain_in_loop(e, name, share)
        if _in_loop(e, name)
        else e.gain(waiting * (queued if waiting > _LONG_QUEUE else share), waiting * (1 - (1 - queued) ** 2)),
        LOW if passed_on or _beside_loads(e, name) else HIGH if e.code else MEDIUM,
        region=name,
        evidence={"share_of_warp_time": share, "median_cycles": cycles, "queued_share": waiting},
        refuted_by=_REFUTED_BY,
    )


def _beside_loads(e: Evidence, name: str) -> bool:
    """Whether the atomics are in a loop of unknown length that also loads, so that either may take its time."""
    return _in_loop(e, name) and name in e.code and bool(e.code[name].loads)


def _gain_in_loop(e: Evidence, name: str, share: float) -> Gain:
    return Gain.between(0.0, share) if _beside_loads(e, name) else e.gain(share / 2, share)


def _cycles_alone(e: Evidence, name: str) -> float:
    """What the region takes if no atomic has to queue: also for its barriers and for loads that it waits for."""
    code = e.code.get(name)
    if code is None:
        return _LATENCY_CYCLES
    awaited = [before for before, after in e.followers.items() if name in after and before in e.code]
    loads = code.loads or any(e.code[before].loads and not e.code[before].atomics for before in awaited)
    waits = max(code.atomics + code.shared_atomics, 1.0) + (_LOAD_LATENCIES if loads else 0) + code.barriers
    return waits * _LATENCY_CYCLES


def _in_loop(e: Evidence, name: str) -> bool:
    """Whether an instance of a region runs its atomics an unknown number of times."""
    return "loop" in words_of(name) or (name in e.code and bool(e.code[name].loops))


def _queued(e: Evidence, share: float) -> float:
    """The share of warp time that queues: for atomics, or behind them where other code takes many times as long as it
    should; what is not marked does so as much as the rest."""
    behind = sum(e.shares[name] for name in _behind(e))
    marked = 1 - e.warps.unmarked
    return min((share + behind) / (1.0 if e.mostly_unmarked else marked), 1.0)


def _waiting(e: Evidence, name: str) -> float:
    """Of the time in the region with atomics and in those that are held up behind them, the share that is the queue."""
    regions = [name, *_behind(e)]
    waited = sum(e.shares[one] * max(1 - _alone(e, one) / max(_median(e, one), 1.0), 0.0) for one in regions)
    return waited / max(sum(e.shares[one] for one in regions), 1e-9)


def _alone(e: Evidence, name: str) -> float:
    return _cycles_alone(e, name) + (0 if _has_atomics(e, name) else _CYCLES * e.code[name].instructions)


def _behind(e: Evidence) -> list[str]:
    """Regions that take many times as long as they should."""
    others = [name for name in e.warps.regions if name in e.code and not _has_atomics(e, name)]
    return [name for name in others if _median(e, name) > _LONG_WAIT * _alone(e, name)]


def _held_up(e: Evidence, name: str) -> float:
    """The share of warp time of a region with atomics. One that does not wait for their results leaves the queue to the
    regions that follow it."""
    own = e.shares[name]
    leaves = name in e.code and own < _LEAST and _median(e, name) < _LATENCY_CYCLES
    return own + (sum(e.followers.get(name, {}).values()) if leaves else 0.0)


def _median(e: Evidence, name: str) -> float:
    shape = next((one for one in e.of(MODES).regions if one.region == name), None)
    return shape.p50 if shape else 0.0


def _has_atomics(e: Evidence, name: str) -> bool:
    """A wait with atomics is a lock, which is another cause; so is a loop that polls."""
    if (name and e.kinds[name] is Purpose.WAIT) or (name in e.code and e.code[name].polls) or name in e.retried:
        return False
    if name not in e.code:
        return bool(words_of(name) & _WORDS)
    return e.code[name].atomics > 0 or _queues_in_shared_memory(e, name)


def _queues_in_shared_memory(e: Evidence, name: str) -> bool:
    """Whether atomics on shared memory take far longer than alone: many lanes meet at an address there, too. In a loop,
    of which older recordings do not say, nothing tells how many atomics an instance makes. Where nothing else does,
    they are judged by themselves."""
    one = e.code[name]
    known = one.atomics and not one.loops and (one.fetch_bytes or not one.loads)
    return bool(one.shared_atomics and known and _median(e, name) > _cycles_alone(e, name))


ATOMICS_CONTENTION = Hypothesis(
    CAUSE,
    _judge,
    explains=frozenset(
        {"too little in flight", "cache misses", "warp imbalance", "block imbalance", "uncoalesced access", "last wave"}
    ),
    needs_headroom=False,
    about_region=True,
)
