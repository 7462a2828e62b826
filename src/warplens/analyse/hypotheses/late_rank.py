"""Do the other ranks of a job wait in collectives for one that this kernel keeps?"""

from __future__ import annotations

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, MEDIUM, Finding, Gain, Number, spread
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.rank_lateness import JOB, LATENESS, LateRank, RankLateness
from warplens.wording import digits, duration, plural

CAUSE = "late rank"
_CONSISTENT = 2.6
"""Equal ranks are late by chance this consistently with a probability of about 0.5 %."""


def _judge(e: Evidence) -> Finding:
    answer = e.answers.of(LATENESS)
    if JOB not in answer.kernels:
        return e.refuted(CAUSE, "the trace has one rank")
    job = answer[JOB]
    if not job.collectives:
        if not _is_largest(e):
            return e.refuted(CAUSE, "no collective of several ranks is in the trace")
        return e.undecided(
            CAUSE,
            f"The trace has {job.ranks} ranks and no collective, so it cannot say which rank the others wait for.",
            "Record a program whose collectives torch.distributed makes, or name kernels with --collective.",
        )
    late = [one for one in job.late_ranks if one.consistency >= _CONSISTENT and _is_about(one, e)]
    if not late:
        return e.refuted(
            CAUSE,
            f"no rank that this kernel keeps is consistently late into {plural(job.collectives, 'collective')} by more "
            f"than the clocks' bound, which is at most {duration(job.widest_ns)}",
        )
    return _finding(e, job, late[0])


def _is_about(one: LateRank, e: Evidence) -> bool:
    """Whether a rank's lateness is to be told of this variant: its cause, or the largest if no kernel is."""
    if one.cause is None or not one.cause.kernel:
        return _is_largest(e)
    return one.cause.kernel == e.kernel and any(info.rank == one.rank for info in e.infos)


def _is_largest(e: Evidence) -> bool:
    """Whether the variant took the most time of all."""
    lives = e.lives
    times = {
        label: sum(lives.launches[at].duration_ns for at in launches.tolist())
        for label, launches in lives.variants.items()
    }
    return e.label == max(times, key=lambda label: times[label])


def _finding(e: Evidence, job: RankLateness, one: LateRank) -> Finding:
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


LATE_RANK = Hypothesis(CAUSE, _judge, needs_headroom=False)
