"""Do warps wait inside a region that also does something else, so that its time does not show for what?"""

from __future__ import annotations

from warplens.analyse.code_counts import LEAST_CYCLES, CodeCounts
from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import WAITS_INSIDE as CAUSE
from warplens.analyse.finding import Finding, Gain
from warplens.analyse.hypotheses.barrier_waits import CAUSE as UNNEEDED
from warplens.analyse.hypotheses.exposed_latency import CAUSE as EXPOSED
from warplens.analyse.hypotheses.exposed_latency import needed_bytes
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.hypotheses.pipeline_sides import CONSUMER, PRODUCER
from warplens.analyse.hypotheses.warp_balance import CAUSE as IMBALANCE
from warplens.analyse.load_waits import LATENCY_NS, most_in_flight, needed_cycles, took
from warplens.analyse.region_purpose import Purpose
from warplens.wording import integer, percent, plural

_LEAST = 0.25
_NEARLY = 0.5


def _judge(e: Evidence) -> Finding:
    found = {name: _waited(e, name) for name, one in e.code.items() if name and _may_wait(e, name, one)}
    name = max(found, key=lambda region: found[region], default="")
    most = min(found.get(name, 0.0), e.room)
    if most < _LEAST:
        return e.refuted(CAUSE, "what regions wait for inside takes little time, or is marked by itself")
    one = e.code[name]
    causes = _causes(e, one)
    return e.undecided(
        CAUSE,
        f"`{name}` takes {percent(e.shares[name])} of warp time: it {_how_long(e, name, one)}. {_inside(one)}, "
        f"so the trace does not show how long warps wait there.{_likely(causes)}",
        f"Mark the {_parts(one)} of one round by themselves, or record it with `warplens run --auto`.",
        Gain.between(0.0, most),
        region=name,
    )


def _may_wait(e: Evidence, name: str, one: CodeCounts) -> bool:
    """Whether a region works and waits: for other warps, for copies, or in a loop for its loads. What its name or its
    code says to be a wait, or to move memory, is judged as that."""
    if e.shares.get(name, 0.0) < _LEAST or e.kinds[name] is Purpose.WAIT or one.polls or one.matrix:
        return False
    # Older recordings do not say which barriers are needed; unneeded ones are judged as such.
    meets = one.needed_barriers + one.unknown_barriers
    if one.waits or (meets and e.warps_per_block > 1 and not _ends_together(one)):
        return True
    return bool(_is_loop(one) and one.loads and e.kinds[name] is not Purpose.MEMORY) and not _fills_the_memory(e)


def _ends_together(one: CodeCounts) -> bool:
    """Whether barriers are outside loops that are equally long in all warps of a block: these meet there a few times,
    at about the same time."""
    return bool(one.lengths_known and not one.looped_barriers and not one.uneven_warps)


def _is_loop(one: CodeCounts) -> bool:
    return bool(one.loops or one.unbounded)


def _fills_the_memory(e: Evidence) -> bool:
    """Whether loads may keep the memory busy, which then is what warps wait for."""
    return e.memory_busy or most_in_flight(e) >= _NEARLY * needed_bytes(e)


def _waited(e: Evidence, name: str) -> float:
    """The share of warp time that a region waits, at most: what its instructions do not explain. In a loop of unknown
    length, one round of loads takes at least a latency beside its instructions."""
    one, share = e.code[name], e.shares.get(name, 0.0)
    needed = needed_cycles(e, one, LEAST_CYCLES)
    if not _is_loop(one):
        return share * max(1 - needed / took(e, name), 0.0)
    if one.barriers or one.waits:
        return share
    latency = LATENCY_NS * e.lives.cycles_per_ns * max(one.load_levels, 1)
    return share * latency / (latency + needed)


def _causes(e: Evidence, one: CodeCounts) -> list[str]:
    """What may be the cause, by what the region executes."""
    if one.waits:
        return [PRODUCER, CONSUMER, EXPOSED]
    meets = one.needed_barriers or one.unknown_barriers
    return [*([EXPOSED] if one.loads and not e.memory_busy else []),
            *([IMBALANCE] if meets else []),
            *([UNNEEDED] if meets and not one.needed_barriers else [])]  # fmt: skip


def _likely(causes: list[str]) -> str:
    if not causes:
        return ""
    listed = " or ".join([", ".join(causes[:-1]), causes[-1]] if len(causes) > 1 else causes)
    return f" If they wait long, the likely cause is {listed}."


def _how_long(e: Evidence, name: str, one: CodeCounts) -> str:
    if _is_loop(one):
        return "has a loop of unknown length"
    cycles, needed = took(e, name), needed_cycles(e, one, LEAST_CYCLES)
    return f"lasts {integer(cycles)} cycles, of which its instructions need {integer(needed)}"


def _inside(one: CodeCounts) -> str:
    kinds = {"barrier": one.barriers, "wait": one.waits, "load": one.loads}
    held = {noun: max(int(count), 1) for noun, count in kinds.items() if count}
    named = [plural(count, noun) for noun, count in held.items()]
    listed = " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)
    return f"{listed} {'is' if sum(held.values()) == 1 else 'are'} inside it"


def _parts(one: CodeCounts) -> str:
    parts = [*(["loads"] if one.loads else []), *(["barriers"] if one.barriers else [])]
    parts += ["waits"] if one.waits else []
    return " and ".join([", ".join([*parts[:-1], "work"]), parts[-1]]) if len(parts) > 1 else f"{parts[0]} and the work"


WAITS_INSIDE = Hypothesis(CAUSE, _judge)
