"""In a kernel whose warps have roles: do consumers wait for the producer, or the producer for consumers?"""

from __future__ import annotations

from dataclasses import dataclass

from warplens.analyse.code_counts import SCHEDULERS
from warplens.analyse.duration_shapes import MODES
from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import LOW, MEDIUM, Finding, Gain
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.role_waits import ROLES, RoleWait, is_unmarked
from warplens.analyse.wait_classes import WaitClass
from warplens.analyse.waves import WAVES
from warplens.wording import numbered, percent

PRODUCER, CONSUMER = "slow producer", "slow consumer"
_LEAST = 0.1
_BOTH, _ALIKE = 0.25, 2.5
_TWICE = 0.5
"""Of a producer's time, what a second one beside it saves."""
_SHALLOW = "producer and consumers wait for one another, as with too few stages"


@dataclass(frozen=True)
class Sides:
    """The two sides, and the share of each one's time that it waits for the other, without the first fill."""

    producer: RoleWait
    consumer: RoleWait
    producer_wait: float
    consumer_wait: float
    producer_at: str
    consumer_at: str

    @property
    def both_wait(self) -> float:
        """The share of time that both sides wait, where they wait for one another: the ring has too few stages.

        With enough stages one side never waits. With too few, each tile takes the latency of its copy and the time of
        both sides, divided by the stages; more stages leave the time of the slower side.
        """
        return _both(self.producer_wait, self.consumer_wait)

    @property
    def unsure(self) -> bool:
        """Whether the slower side may wait as well, inside a region that also does something else."""
        most = [wait + one.unsure for wait, one in self._waits]
        return not self.both_wait and bool(_both(*most))

    @property
    def _waits(self) -> tuple[tuple[float, RoleWait], tuple[float, RoleWait]]:
        return (self.producer_wait, self.producer), (self.consumer_wait, self.consumer)


def _both(one: float, other: float) -> float:
    less, more = sorted((one, other))
    return less if less >= _BOTH and more <= _ALIKE * less else 0.0


def sides_of(e: Evidence) -> Sides | None:
    """Producer and consumer, where the warps of a block have these roles and wait for one another."""
    roles = e.of(ROLES).roles
    producers = [one for one in roles if one.side == "producer"]
    consumers = [one for one in roles if one.side == "consumer"]
    if not producers or not consumers:
        return None
    first = max(producers, key=lambda one: one.share)
    second = max(consumers, key=lambda one: one.share)
    blocked, blocked_at = _steady(e, first, {WaitClass.SPACE, WaitClass.DATA})
    starved, starved_at = _steady(e, second, {WaitClass.DATA})
    return Sides(first, second, blocked, starved, blocked_at, starved_at)


def _steady(e: Evidence, role: RoleWait, wanted: set[WaitClass]) -> tuple[float, str]:
    """The share of the blocks' time that a role waits for the other. What the first instances take longer is left out,
    as it fills the pipeline, and so is what it has started itself."""
    others = {region: share for region, share in role.waits.items() if region not in role.own_waits}
    waits = {region: share for region, share in others.items() if e.wait_class(region) in wanted}
    shapes = {one.region: one for one in e.of(MODES).regions}
    steady = sum(
        share * (1 - shapes[region].first_share if region in shapes else 1.0) for region, share in waits.items()
    )
    return steady * role.life, max(waits, key=lambda region: waits[region], default="")


def _judge_producer(e: Evidence) -> Finding:
    sides = sides_of(e)
    if sides is None:
        return e.refuted(PRODUCER, "no warps of a block produce what others consume")
    evidence = side_evidence(sides)
    if sides.both_wait:
        return e.refuted(PRODUCER, _SHALLOW)
    if sides.consumer_wait < _LEAST or sides.consumer_wait < sides.producer_wait:
        return e.refuted(PRODUCER, f"consumers wait {percent(sides.consumer_wait)} of their time for data")
    if sides.unsure:
        return _unsure(e, PRODUCER, sides, sides.consumer_wait)
    name = sides.producer.role.name
    most = sides.consumer_wait + sides.consumer.unsure
    return e.supported(
        PRODUCER,
        f"The producer is too slow: consumers ({sides.consumer.role.name}) wait {percent(sides.consumer_wait)} of "
        f"their time in {e.named(sides.consumer_at)}, while the producer ({name}) waits "
        f"{percent(sides.producer_wait)}.",
        "Keep more copies in flight (more stages), let more warps produce, or make each copy wider (TMA, 16 bytes per "
        "lane).",
        # Twice as many producers take half the time. With more of them what consumers do not wait for remains; memory
        # that is slower than both, or the schedulers, may take the place of the producer.
        e.gain(
            e.surely_gained * min(sides.consumer_wait, _TWICE * (1 - sides.producer_wait)),
            min(most, e.room),
            roof=most + 0.05 * (1 - most),
        ),
        MEDIUM,
        region=sides.consumer_at,
        warps=sides.producer.role.warps,
        evidence=evidence,
        refuted_by="Twice the producer warps or stages leave the consumers' wait as it is.",
    )


def _judge_consumer(e: Evidence) -> Finding:
    sides = sides_of(e)
    if sides is None:
        return _unmarked_consumers(e) or e.refuted(CONSUMER, "no warps of a block consume what others produce")
    evidence = side_evidence(sides)
    if sides.both_wait:
        return e.refuted(CONSUMER, _SHALLOW)
    if sides.producer_wait < _LEAST or sides.producer_wait < sides.consumer_wait:
        return e.refuted(CONSUMER, f"the producer waits {percent(sides.producer_wait)} of its time for free stages")
    if sides.unsure:
        return _unsure(e, CONSUMER, sides, sides.producer_wait)
    what = (
        f"The consumers are the limit: the producer ({sides.producer.role.name}) waits {percent(sides.producer_wait)} "
        f"of its time in {e.named(sides.producer_at)}, the consumers ({sides.consumer.role.name}) "
        f"{percent(sides.consumer_wait)}."
    )
    others = [one for one in e.of(ROLES).roles if one.side != "producer" and one.role.often]
    busy = sum(len(one.role.warps) for one in others) * e.of(WAVES).slots
    alone = busy < SCHEDULERS
    # Consumers on every scheduler may be at their roof, which is how a good pipeline looks.
    waits = sides.producer_wait
    gain = e.gain(min(waits, 1 - busy / SCHEDULERS), roof=waits) if alone else Gain.between(0.0, waits)
    roof = "" if alone or e.roof[0] != "unknown" else " A pipeline that is bound by arithmetic looks like this, too."
    return e.supported(
        CONSUMER,
        what + roof,
        "Let more warps consume, give each less work per stage, or use the matrix units"
        + ("; give the work (--flops) to see how far the roof is." if roof else "."),
        gain,
        MEDIUM if alone else LOW,
        region=sides.producer_at,
        warps=sides.consumer.role.warps,
        evidence=evidence | {"consumer_warps_per_sm": busy},
        refuted_by="Twice the consumer warps, each with half the work, take as long.",
    )


def _unsure(e: Evidence, cause: str, sides: Sides, wait: float) -> Finding:
    """One side waits; whether the other does, inside a region that also works, its instructions do not say."""
    producer, consumer = sides.producer.role.name, sides.consumer.role.name
    if cause == PRODUCER:
        slow, waits = sides.producer, f"Consumers ({consumer}) wait {percent(wait)} of their time in "
        who, waits_at = f"the producer ({producer}) is", sides.consumer_at
    else:
        slow, waits = sides.consumer, f"The producer ({producer}) waits {percent(wait)} of its time in "
        who, waits_at = f"the consumers ({consumer}) are", sides.producer_at
    region = max(slow.waits, key=lambda name: slow.waits[name], default="")
    return e.undecided(
        cause,
        f"{waits}{e.named(waits_at)}. Either {who} too slow ({cause}), or the ring has too few stages (too little in "
        f"flight). {e.named(region)} has a wait and work in one region, so the trace does not show which.",
        "Mark the wait by itself, or record it with `warplens run --auto`.",
        Gain.between(0.0, wait),
        region=region,
    )


def _unmarked_consumers(e: Evidence) -> Finding | None:
    """A producer that waits for room, where the warps that take what it brings have no marks."""
    roles = e.of(ROLES).roles
    producers = [one for one in roles if one.side == "producer"]
    others = [warp for one in roles if is_unmarked(one.role) for warp in one.role.warps]
    if not producers or not others:
        return None
    producer = max(producers, key=lambda one: one.share)
    waits, region = _steady(e, producer, {WaitClass.SPACE})
    if waits < _LEAST:
        return None
    return e.supported(
        CONSUMER,
        f"The consumers may be the limit: the producer ({producer.role.name}) waits {percent(waits)} of its time in "
        f"{e.named(region)}. Nothing is marked in {numbered('warp', others)}, so the trace does not show what they do "
        "meanwhile.",
        "Mark the wait and the work of the consumers, or record it with `warplens run --auto`.",
        Gain.between(0.0, waits),
        LOW,
        region=region,
        warps=others,
        evidence={"producer_wait": waits},
        refuted_by="Consumers that wait for data most of their time.",
    )


def side_evidence(sides: Sides) -> dict[str, float | int | str]:
    return {"producer_wait": sides.producer_wait, "consumer_wait": sides.consumer_wait}


SLOW_PRODUCER = Hypothesis(PRODUCER, _judge_producer, explains=frozenset({"too little in flight", "cache misses"}))
SLOW_CONSUMER = Hypothesis(CONSUMER, _judge_consumer, explains=frozenset({"warp imbalance", "low occupancy"}))
