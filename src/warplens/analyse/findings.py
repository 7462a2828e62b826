"""The one engine: judge every hypothesis on every kernel variant, and rank what the evidence supports.

`warplens findings`, `diagnose`, `stats --findings`, the report, `trace.findings()` and the pytest plugin all show this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

from warplens.analyse.analysis import Answers
from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import (
    HIGH,
    LOW,
    MEDIUM,
    MINOR,
    NOTHING_TO_FIX,
    REFUTED,
    SUPPORTED,
    UNDECIDED,
    WAITS_INSIDE,
    Finding,
    Gain,
)
from warplens.analyse.finding_text import gain_text
from warplens.analyse.hang import has_hangs
from warplens.analyse.hypotheses import HYPOTHESES
from warplens.analyse.hypotheses.barrier_waits import CAUSE as BARRIER
from warplens.analyse.hypotheses.numerical_problem import NUMERICAL_PROBLEM
from warplens.analyse.hypotheses.pipeline_sides import CONSUMER, PRODUCER
from warplens.analyse.hypotheses.warp_balance import CAUSE as UNEVEN_WARPS
from warplens.analyse.known_facts import KnownFacts
from warplens.analyse.measured_slopes import slope_text, slopes_of
from warplens.analyse.rank_hangs import rank_findings
from warplens.analyse.region_cells import TrackSums
from warplens.analyse.region_counters import RegionCounters
from warplens.analyse.region_purity import RegionPurity, region_purity
from warplens.analyse.region_purpose import Purpose
from warplens.analyse.row_pass import pass_over
from warplens.analyse.sampled_stalls import sampled_stalls
from warplens.analyse.sm_clock import placement_error, too_small
from warplens.analyse.trace_quality import HOST_TIME
from warplens.analyse.variant_verdicts import VariantVerdicts
from warplens.analyse.waves import WAVES
from warplens.text import printable
from warplens.trace.model import Trace
from warplens.wording import percent

_MISSING_BLOCKS = "some blocks were not recorded, so an idle SM may have run blocks that are not in the trace"
_MIN_GAIN = 0.02
"""A cause whose removal can gain no more is not worth a finding."""
_REMEDIES = {"memory": "fewer bytes (reuse, fusion, smaller types)", "compute": "fewer operations or a faster type"}
_UNDECIDED = 0.25
"""What is undecided and may gain more than this is worth deciding first."""
_WORTH_RECORDING = 0.1
"""What is withheld and would gain more than this is worth another recording."""
_EXPLAINS = 0.5
_HIDDEN = 0.05
_ROOM = 0.1
"""Closer than this to its roof, no cause matters."""


@dataclass(frozen=True, repr=False)
class Findings(Sequence[Finding]):
    """The findings that the evidence supports, the largest expected gain first; consequences are below their cause.

    `undecided` are hypotheses that the trace cannot decide, each with what to record. `withheld` are findings within
    the clock's error or the profiling overhead, with the reason. `refuted` are the other hypotheses, and why.
    """

    supported: tuple[Finding, ...] = ()
    undecided: tuple[Finding, ...] = ()
    withheld: tuple[Finding, ...] = ()
    refuted: tuple[Finding, ...] = ()

    @overload
    def __getitem__(self, at: int) -> Finding: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, at: int | slice) -> Finding | tuple[Finding, ...]:
        return self.supported[at]

    def __len__(self) -> int:
        return len(self.supported)

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that there is something to do about."""
        return tuple(one for one in self.supported if one.kind not in (NOTHING_TO_FIX, UNDECIDED, "host time"))

    def __repr__(self) -> str:
        """One line per finding, the largest expected gain first; each is an element."""
        lines = [
            f"{number}. {one.kind} in {one.kernel}: {gain_text(one)}, confidence {one.confidence}"
            for number, one in enumerate(self, 1)
        ]
        kinds = ", ".join(dict.fromkeys(one.kind for one in self.undecided))
        return printable("\n".join([*(lines or ["no findings"]), *([f"undecided: {kinds}"] if kinds else [])]))

    def of(self, kernel: str) -> Findings:
        """The findings about one kernel variant."""
        parts = (self.supported, self.undecided, self.withheld, self.refuted)
        return Findings(*(tuple(one for one in part if one.kernel == kernel) for part in parts))

    def to_json(self) -> dict[str, Any]:
        return {
            "findings": [one.to_json() for one in self.supported],
            "undecided": [one.to_json() for one in self.undecided],
            "withheld": [one.to_json() for one in self.withheld],
            "refuted": [{"kind": one.kind, "kernel": one.kernel, "why": one.what} for one in self.refuted],
        }


def findings(trace: Trace, *, waits_like: str | None = None, given: KnownFacts | None = None) -> Findings:
    """Judge every hypothesis on every kernel variant of a trace.

    `waits_like` is a regular expression for regions that only wait, in addition to those whose name says so. `given` is
    what is known beyond the trace, such as the kernel's work or a report of Nsight Compute.
    """
    return findings_from(Answers(trace, waits_like), given)


def findings_from(answers: Answers, given: KnownFacts | None = None) -> Findings:
    """The same, from answers that may have been computed already."""
    hung = rank_findings(answers.trace)
    # Most hypotheses look at these columns as a whole, so they are read with what is summed up.
    pass_over(answers.trace, TrackSums, keep=("region", "kind", "open", "parent", "start_cycle", "dur_cycles"))
    if not answers.trace.of_kind("span").any():
        return Findings(tuple(hung))
    lives = answers.lives
    total = sum(launch.duration_ns for launch in lives.launches) or 1
    judged: list[Finding] = []
    for label, launches in lives.variants.items():
        if has_hangs(info for at in launches.tolist() if (info := lives.launches[at].info)):
            continue  # its times end at the last records, so they say nothing about its speed
        evidence = Evidence(answers, label, given or KnownFacts())
        share = sum(lives.launches[at].duration_ns for at in launches.tolist()) / total
        judged += [sized(one, evidence.kernel_ns, share) for one in _judge(evidence)]
    pure = region_purity(answers.trace)
    judged = [with_caution(one, pure) for one in judged]
    stalls = [*(given or KnownFacts()).counters, *sampled_stalls(answers.trace).regions]
    judged = [_with_stalls(one, stalls) for one in judged]
    supported = [one for one in judged if one.verdict == SUPPORTED]
    return Findings(
        (*hung, *sorted((one for one in supported if not one.withheld), key=lambda one: (not one.urgent, -one.rank))),
        tuple(sorted((one for one in judged if one.verdict == UNDECIDED), key=lambda one: -one.rank)),
        tuple(one for one in supported if one.withheld),
        tuple(one for one in judged if one.verdict == REFUTED),
    )


def with_caution(one: Finding, pure: Mapping[tuple[str, str], RegionPurity]) -> Finding:
    """A finding about a region, with what the machine code holds between its marks; so are its consequences."""
    below = tuple(with_caution(each, pure) for each in one.consequences)
    found = next((each for (kernel, region), each in pure.items() if one.is_about(kernel, region)), None)
    if found is None:
        return replace(one, consequences=below) if below else one
    evidence = {**one.evidence, "purity": found.purity, "complete": found.complete}
    return replace(one, evidence=evidence, caution=found.caution, consequences=below)


def _with_stalls(one: Finding, counters: Sequence[RegionCounters]) -> Finding:
    """A finding about a region, with what its warps were stalled by where that was sampled; so are its consequences."""
    below = tuple(_with_stalls(each, counters) for each in one.consequences)
    found = next((each.evidence for each in counters if one.is_about(each.kernel, each.region)), {})
    # The reason comes first, because views show only the first numbers.
    first: dict[str, Any] = {name: found[name] for name in ("stalled_by", "stall_share") if name in found}
    return replace(one, evidence={**first, **one.evidence, **found}, consequences=below) if found or below else one


def _judge(evidence: Evidence) -> list[Finding]:
    """All verdicts on one kernel variant, with consequences below their causes."""
    if evidence.clock == "cpu":
        return [_host_time(evidence), NUMERICAL_PROBLEM.judge(evidence)]
    if evidence.trace.meta.selected:
        return [_of_part(evidence, evidence.trace.meta.selected)]
    aggregated = evidence.trace.aggregated
    judged = [_checked(evidence, cause) for cause, one in HYPOTHESES.items() if not (aggregated and one.needs_timeline)]
    sure = [one for one in judged if one.verdict == SUPPORTED and not one.withheld]
    others = [one for one in judged if one not in sure]
    causes = _nested(sorted(sure, key=lambda one: -one.expected))
    if not aggregated and not any(one.expected >= MINOR or one.urgent for one in causes):
        causes.append(_nothing_to_fix(evidence, causes, others))
    return [*causes, *others]


def _checked(evidence: Evidence, cause: str) -> Finding:
    """The verdict of one hypothesis, unless the roof, the clock or the cost of profiling speaks against it."""
    hypothesis = HYPOTHESES[cause]
    one = hypothesis.judge(evidence)
    if one.verdict != SUPPORTED or one.urgent:
        return one
    if hypothesis.needs_headroom and evidence.at_roof:
        bound, reached = evidence.roof
        room = 1 - reached
        why = f"the kernel is at {percent(reached)} of its {bound} roof"
        if room < one.gain.low or room < _ROOM:
            return evidence.refuted(cause, f"{one.what} But {why}, so removing this would gain little.")
        one = replace(one, gain=Gain.between(0.0, min(one.gain.high, room)))
    if hypothesis.about_region:
        one = _measured(evidence, one)
    if one.verdict == SUPPORTED and hypothesis.about_grid and not evidence.of(WAVES).complete:
        one = replace(one, withheld=one.withheld or _MISSING_BLOCKS)
    error_ns = 0.0 if hypothesis.between_ranks else placement_error(evidence.trace)
    return reliable(one, evidence, evidence.kernel_ns, error_ns, evidence.cost)


def reliable(one: Finding, verdicts: VariantVerdicts, kernel_ns: float, error_ns: float, cost: float | None) -> Finding:
    """A verdict, refuted if the gain is not worth a finding, or withheld if the clock or the cost of profiling speaks
    against it."""
    if one.verdict != SUPPORTED:
        return one
    if one.gain.high < _MIN_GAIN:
        return verdicts.refuted(one.kind, one.what)
    if one.evidence.get("from") == "PTX":
        cost = None  # marks do not change what the code does
    return one if one.withheld else replace(one, withheld=too_small(one.gain.high, kernel_ns, error_ns, cost))


def _measured(evidence: Evidence, one: Finding) -> Finding:
    """Hold a gain against the measured slope of its region: how much of a cycle spent there reaches the end."""
    slope = slopes_of(evidence.trace).get((evidence.kernel, one.region))
    if slope is None or slope.low is None or slope.high is None:
        return one
    if slope.high < _HIDDEN:
        why = f"delays in `{one.region}` do not reach the kernel's end (slope {slope_text(slope)})"
        return evidence.refuted(one.kind, f"{one.what} But {why}.")
    low, high = min(max(slope.low, 0.0), 1.0), min(max(slope.high, 0.0), 1.0)
    gain = Gain.between(one.gain.low * low, one.gain.high * high)
    return replace(one, gain=gain, evidence={**one.evidence, "measured_slope": slope.slope or 0.0})


def _nested(ranked: Sequence[Finding]) -> list[Finding]:
    """Put findings below the cause that explains them, which need not be larger than its symptom, but not much less."""
    parents: dict[str, str] = {}
    for one in ranked:
        above = [
            cause
            for cause in ranked
            if one.kind in HYPOTHESES[cause.kind].explains
            and cause.expected >= _EXPLAINS * one.expected
            and not _stays(one, cause)
            and parents.get(cause.kind) != one.kind
        ]
        if above:
            parents[one.kind] = above[0].kind
    below: dict[str, list[Finding]] = {}
    for one in ranked:
        if one.kind in parents:
            below.setdefault(parents[one.kind], []).append(one)

    def with_all(one: Finding) -> Finding:
        return one.with_consequences([with_all(each) for each in below.get(one.kind, ())])

    return [with_all(one) for one in ranked if one.kind not in parents]


def _stays(one: Finding, cause: Finding) -> bool:
    """Whether a finding is a cause of its own beside one that may explain it: without a barrier that the code shows to
    be free, uneven rounds even out; what warps have more of over the whole kernel is what remains."""
    return one.kind == BARRIER and cause.kind == UNEVEN_WARPS and one.evidence.get("from") == "PTX"


def _nothing_to_fix(evidence: Evidence, small: Sequence[Finding], others: Sequence[Finding]) -> Finding:
    """The answer where no cause is supported: that nothing is to fix, or what has to be decided first."""
    bound, reached = evidence.roof
    open_ = sorted((one for one in others if one.verdict == UNDECIDED), key=lambda one: -one.gain.high)
    top = next(iter(evidence.warps.regions.items()), ("", 0.0))
    if evidence.at_roof:
        return evidence.supported(
            NOTHING_TO_FIX,
            f"Nothing to fix in how it runs: the kernel is {bound} bound, at {percent(reached)} of its roof.",
            f"Only {_REMEDIES[bound]} would make it faster.",
            Gain.between(0.0, max((one.gain.high for one in small), default=0.0)),
            HIGH,
            region=top[0],
            evidence={"of_roof": reached},
            refuted_by="A version of the kernel that moves the same bytes, or does the same operations, in less time.",
        )
    if (
        open_
        and open_[0].gain.high > _UNDECIDED
        and (
            open_[0].kind in (WAITS_INSIDE, PRODUCER, CONSUMER)
            or evidence.kinds.get(open_[0].region) is not Purpose.WORK
        )
    ):
        one = open_[0]
        more = {"evidence": dict(one.evidence), "region": one.region, "refuted_by": "The measurement that decides it."}
        return evidence.supported(UNDECIDED, f"Not decided: {one.what}", one.advice, one.gain, LOW, **more)
    held = max((one for one in others if one.withheld), key=lambda one: one.gain.middle, default=None)
    if held is not None and held.gain.middle >= _WORTH_RECORDING:
        return evidence.supported(
            UNDECIDED,
            f"Not decided: {held.kind}, as {held.withheld}. {held.what}",
            "Record it with fewer marks (fewer regions, or fewer classes of --auto), and all blocks.",
            held.gain,
            LOW,
            region=held.region,
            refuted_by="A recording that costs less and does not show it.",
        )
    busy = f"; most warp time goes to `{top[0]}` ({percent(top[1])})" if top[0] else ""
    largest = max(small, key=lambda one: one.gain.high, default=None)
    most = f" (the largest, {largest.kind}, at most {percent(largest.gain.high)})" if largest else ""
    return evidence.supported(
        NOTHING_TO_FIX,
        f"Nothing to fix was found: no cause is expected to gain more than {percent(MINOR, 0)}{most}{busy}."
        f"{_to_decide(open_)}",
        "Give the work (--flops, --bytes) or an Nsight Compute report (--ncu) to see how far the roof is.",
        Gain.between(0.0, max((one.gain.high for one in small), default=0.0)),
        MEDIUM,
        region=top[0],
        refuted_by="A version of the kernel that does the same work in less time.",
    )


def _to_decide(undecided: Sequence[Finding]) -> str:
    named = [one.kind for one in undecided if one.gain.high > _ROOM]
    return f" Not decided: {', '.join(named)}." if named else ""


def _host_time(evidence: Evidence) -> Finding:
    return evidence.supported(
        "host time",
        f"{HOST_TIME}: they say nothing about a GPU.",
        "Record on a GPU to get findings.",
        Gain(0.0, 0.0),
        HIGH,
        refuted_by="A trace recorded on a GPU.",
    )


def _of_part(evidence: Evidence, selected: str) -> Finding:
    return evidence.undecided(
        "selection",
        f"The trace is a part, selected by {selected}: what was left out would be taken for idle or unmarked time.",
        "Get findings of the whole trace, or of whole kernels and launches.",
    )


def sized(one: Finding, ns: float, share: float) -> Finding:
    """Add the gain per launch in ns, and the share of the trace's time that the variant has."""
    below = tuple(sized(each, ns, share) for each in one.consequences)
    gain_ns = Gain(one.gain.low * ns, one.gain.high * ns)
    return replace(one, gain_ns=gain_ns, kernel_share=share, consequences=below)
