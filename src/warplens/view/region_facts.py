"""What a report says about a region besides its durations: source, machine code, waits, stalls and measured slopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warplens.analyse.analysis import Answers
from warplens.analyse.measured_slopes import slope_text, slopes_of
from warplens.analyse.region_counters import RegionCounters
from warplens.analyse.region_purity import region_purity
from warplens.analyse.waits import WAITS
from warplens.wording import percent

_MOST_WAITED_FOR = 3

Facts = dict[int, list[tuple[str, str]]]


def region_facts(answers: Answers, places: Mapping[str, int], counters: Sequence[RegionCounters] = ()) -> Facts:
    """Names and texts by the place of each region. What the trace does not have is left out."""
    facts: Facts = {}
    if not len(answers.trace):
        return facts
    several = len(answers.trace.kernels) > 1

    def add(region: str, name: str, text: str, kernel: str) -> None:
        if region in places and text:
            facts.setdefault(places[region], []).append((f"{name} ({kernel})" if several else name, text))

    for name, location in answers.trace.meta.locations.items():
        if name in places:
            facts.setdefault(places[name], []).append(("source", location.replace("\\", "/").rsplit("/", 1)[-1]))
    for (kernel, region), pure in region_purity(answers.trace).items():
        belongs = f"{percent(pure.purity)} of the instructions between its marks belong to it"
        add(region, "machine code", pure.caution or belongs, kernel)
    for kernel, waits in answers.of(WAITS).kernels.items():
        for wait in waits.regions:
            released = sorted(wait.waits_for.items(), key=lambda item: -item[1])[:_MOST_WAITED_FOR]
            add(
                wait.region, "waits for", ", ".join(f"{other} {percent(share, 0)}" for other, share in released), kernel
            )
    for one in counters:
        add(one.region, "stalls", one.sentence, one.kernel)
    for (kernel, region), slope in slopes_of(answers.trace).items():
        add(region, "slope measured with delays", slope_text(slope), kernel)
    return facts
