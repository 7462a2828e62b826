"""The verdicts on late ranks in a job whose rows are never in memory together, from the sums of its launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from warplens.analyse.analysis import Answers
from warplens.analyse.collective_entries import JobCollectives
from warplens.analyse.finding import Finding, Number, spread
from warplens.analyse.findings import reliable, sized, with_caution
from warplens.analyse.hang import has_hangs
from warplens.analyse.hypotheses.late_rank import VariantInJob, judge_lateness
from warplens.analyse.job_launches import JobLaunches, WarpSums, warp_sums
from warplens.analyse.known_facts import KnownFacts
from warplens.analyse.lifetimes import LaunchLifetime, Lifetimes
from warplens.analyse.profiling_cost import cost_of_launches
from warplens.analyse.rank_lateness import rank_lateness
from warplens.analyse.region_purity import region_purity
from warplens.analyse.variant_verdicts import VariantVerdicts
from warplens.trace.model import Trace
from warplens.trace.rank_clocks import RankClocks

PieceLaunch = tuple[LaunchLifetime, WarpSums]


def piece_launches(piece: Trace) -> list[PieceLaunch]:
    """The launches of a piece of a dataset, on the piece's own time axis, and without their documents."""
    lives = Lifetimes.of(piece)
    plain = (replace(launch, info=None) for launch in lives.launches)
    return list(zip(plain, warp_sums(lives), strict=True))


def merge_launches(
    pieces: Sequence[PieceLaunch], labels: Mapping[tuple[int, int], str], shifts: Mapping[tuple[int, int], int]
) -> JobLaunches:
    """The launches of all pieces, on the time axis that `shifts` moves them to, with the labels of the dataset."""
    found = []
    for launch, sums in pieces:
        key = launch.rank, launch.number
        begin, end = (ns + shifts.get(key, 0) for ns in (launch.begin_ns, launch.end_ns))
        found.append((replace(launch, variant=labels[key], begin_ns=begin, end_ns=end), sums))
    found.sort(key=lambda one: (one[0].rank, one[0].number))
    return JobLaunches([launch for launch, _ in found], lambda: [sums for _, sums in found])


def late_rank_findings(
    job: JobLaunches, outline: Trace, given: KnownFacts, collectives: str | None = None
) -> dict[str, Finding]:
    """The verdict on each kernel variant, as `findings` gives it for a trace in memory; `outline` is the dataset
    without its rows."""
    if outline.aggregated or not job.launches:
        return {}
    answers = Answers(outline)
    lateness = rank_lateness(JobCollectives(job, RankClocks.of(outline.meta), collectives))
    infos = {(info.rank, info.launch): info for info in outline.meta.launches}
    total = sum(launch.duration_ns for launch in job.launches)
    pure = region_purity(outline)
    found = {}
    for label, numbers in job.variants.items():
        launches = [job.launches[at] for at in numbers]
        mine = [infos[one.rank, one.number] for one in launches]
        if has_hangs(mine) or mine[0].clock == "cpu":
            continue
        verdicts = _SummedVariant(answers, launches)
        kernel_ns = given.time_ns or sum(verdicts.durations_ns) / len(launches)
        executions = sum(count for at in numbers for _, count in job.sums[at].regions.values())
        cost = cost_of_launches(mine, outline.meta.cost, lambda count=executions: count)  # type: ignore[misc]
        one = judge_lateness(verdicts, lateness, VariantInJob.of(job, label))
        one = reliable(one, verdicts, kernel_ns, 0.0, cost)
        found[label] = with_caution(sized(one, kernel_ns, sum(verdicts.durations_ns) / total), pure)
    return found


class _SummedVariant(VariantVerdicts):
    def __init__(self, answers: Answers, launches: Sequence[LaunchLifetime]) -> None:
        self.answers, self.label, self.kernel = answers, launches[0].variant, launches[0].kernel
        self.durations_ns = [launch.duration_ns for launch in launches]

    @property
    def common(self) -> Mapping[str, Number]:
        return {"kernel_ns": spread(self.durations_ns, "launches")}
