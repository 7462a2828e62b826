"""Do the other ranks of a job wait in collectives for one that this kernel keeps?"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, MEDIUM, Finding, Gain, Number, spread
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.job_launches import JobLaunches
from warplens.analyse.rank_lateness import JOB, LATENESS, LateRank, RankLateness
from warplens.analyse.variant_verdicts import VariantVerdicts
from warplens.wording import digits, duration, plural

CAUSE = "late rank"
_CONSISTENT = 2.6
"""Equal ranks are late by chance this consistently with a probability of about 0.5 %."""


@dataclass(frozen=True)
class VariantInJob:
    """A kernel variant among those of a job: the ranks that launched it, and whether it took the most time of all."""

    kernel: str
    ranks: Collection[int]
    is_largest: bool

    @staticmethod
    def of(job: JobLaunches, label: str) -> VariantInJob:
        launches = [job.launches[at] for at in job.variants[label]]
        return VariantInJob(launches[0].kernel, {one.rank for one in launches}, label == job.largest)


def judge_lateness(e: VariantVerdicts, job: RankLateness | None, variant: VariantInJob) -> Finding:
    """The verdict on one variant, by how late the ranks of its job are."""
    if job is None:
        return e.refuted(CAUSE, "the trace has one rank")
    if not job.collectives:
        if not variant.is_largest:
            return e.refuted(CAUSE, "no collective of several ranks is in the trace")
        return e.undecided(
            CAUSE,
            f"The trace has {job.ranks} ranks and no collective, so it cannot say which rank the others wait for.",
            "Record a program whose collectives torch.distributed makes, or name kernels with --collective.",
        )
    late = [one for one in job.late_ranks if one.consistency >= _CONSISTENT and _is_about(one, variant)]
    if not late:
        return e.refuted(
            CAUSE,
            f"no rank that this kernel keeps is consistently late into {plural(job.collectives, 'collective')} by more "
            f"than the clocks' bound, which is at most {duration(job.widest_ns)}",
        )
    return _finding(e, job, late[0])


def _is_about(one: LateRank, variant: VariantInJob) -> bool:
    """Whether a rank's lateness is to be told of this variant: its cause, or the largest if no kernel is."""
    if one.cause is None or not one.cause.kernel:
        return variant.is_largest
    return one.cause.kernel == variant.kernel and one.rank in variant.ranks


def _finding(e: VariantVerdicts, job: RankLateness, one: LateRank) -> Finding:
    mine = [entry.late_ns for entry in job.entries if entry.rank == one.rank]
    evidence: dict[str, Number] = {
        "rank": one.rank,
        "late_ns": spread(mine, "collectives"),
        "clock_bound_ns": one.bound_ns,
        "late_into": f"{one.late:,} of {plural(one.collectives, 'collective')}",
    }
    said = (
        f"Rank {one.rank} is late into {one.late:,} of {plural(one.collectives, 'collective')}, by "
        f"{duration(one.late_ns)} at the median (clock bound {duration(one.bound_ns)}), and the other ranks wait for it"
    )
    cause = one.cause
    if cause is None:
        return e.undecided(
            CAUSE,
            f"{said}. No launch was recorded between these collectives and those before, so the cause is not known.",
            "Record more launches (--launches, --from-step and --to-step).",
            evidence=evidence,
        )
    if not cause.kernel:
        return e.supported(
            CAUSE,
            f"{said}. The recorded kernels do not explain it: it comes from host code, or from kernels that are not "
            "recorded.",
            f"Look at what rank {one.rank} does between collectives: data loading, host code, other kernels "
            "(`warplens run --list-kernels`).",
            Gain.between(0.0, one.late_ns / max(cause.window_ns, 1.0)),
            MEDIUM,
            evidence=evidence,
            refuted_by=f"A profile in which rank {one.rank} makes its launches as early as the others.",
        )
    evidence["extra_ns"] = cause.extra_ns
    where = f"{e.kernel} takes {duration(cause.extra_ns)} longer there than on other ranks"
    why = ""
    if cause.region:
        often, usual = cause.executions
        evidence["region_extra_ns"] = cause.region_extra_ns
        why = f", {duration(cause.region_extra_ns)} of that per warp in `{cause.region}`"
        if often > 1.2 * usual:
            why += f", which a warp executes {digits(often)} times instead of {digits(usual)}"
    extra = max(cause.extra_ns, 1.0)
    return e.supported(
        CAUSE,
        f"{said}. Between collectives, {where}{why}.",
        f"Give rank {one.rank} less of this work, or find out why "
        + (f"`{cause.region}`" if cause.region else "the kernel")
        + " takes longer there: more work, other data, a slower GPU.",
        Gain.between((extra - one.bound_ns) / cause.kernel_ns, extra / cause.kernel_ns),
        HIGH,
        region=cause.region,
        evidence=evidence,
        refuted_by=f"The same work on all ranks, with rank {one.rank} still late.",
    )


def _judge(e: Evidence) -> Finding:
    answer = e.answers.of(LATENESS)
    found = answer[JOB] if JOB in answer.kernels else None
    return judge_lateness(e, found, VariantInJob.of(e.answers.job.launches, e.label))


LATE_RANK = Hypothesis(CAUSE, _judge, needs_headroom=False, between_ranks=True)
