"""What `warplens stats` shows instead of its table: the region tree, findings, counters and single analyses."""

from __future__ import annotations

from typing import Any

from warplens.analyse.analysis import Answers
from warplens.analyse.executions import NO_TIMELINE
from warplens.analyse.findings import findings_from
from warplens.analyse.known_facts import KnownFacts
from warplens.analyse.region_counters import AttributedPages, region_counters
from warplens.analyse.region_tree import prune_tree, region_tree
from warplens.analyse.registry import ANALYSES
from warplens.analyse.sampled_stalls import sampled_stalls
from warplens.commands.shared.analysis_tables import answer_table, print_findings, print_unknown_overhead, tree_table
from warplens.commands.shared.console import stdout, working
from warplens.commands.shared.counter_tables import print_counters
from warplens.commands.shared.finding_options import read_report
from warplens.errors import UsageError
from warplens.runner.nsight_compute import find_source_pages
from warplens.trace.model import Trace


class Sections:
    """Prints sections about a trace, unless as JSON, and collects them in `document`.

    The tree and counters are those of `part`, which may hold some regions only; the rest needs the `whole`.
    """

    def __init__(
        self, part: Trace, whole: Trace, path: str, as_json: bool, waits: str | None, collective: str | None
    ) -> None:
        self.document: dict[str, Any] = {}
        self._part, self._trace, self._path, self._as_json = part, whole, path, as_json
        self._answers = Answers(whole, waits, collectives=collective)

    def show_tree(self, **pruning: Any) -> None:
        roots = prune_tree(region_tree(self._part), **pruning)
        self.document["tree"] = [root.to_json() for root in roots]
        if not self._as_json:
            stdout().print(tree_table(roots))

    def show_facts(self, ncu: str | None, *, stalls: bool, findings: bool) -> None:
        """Show stalls and counters, as far as they are known, and findings where they are asked for."""
        pages = find_source_pages(ncu) if ncu else None
        counted = [] if pages is None else [region_counters(self._part, pages)]
        if stalls and not self._trace.meta.pc_samples:
            raise UsageError(f"--stalls: {self._path} has no samples; record it with `warplens run --stalls`")
        if pages is not None or stalls:
            counters = AttributedPages.joined([*([sampled_stalls(self._part)] if stalls else []), *counted])
            self.document["counters"] = counters.to_json()
            if not self._as_json:
                print_counters(stdout(), counters)
        only_pages = pages is not None and str(ncu).endswith(".csv")
        if findings or (ncu and not only_pages):
            whole = counted if pages is None or self._part is self._trace else [region_counters(self._trace, pages)]
            facts = KnownFacts(
                ncu=read_report(None if only_pages else ncu, None, self._trace),
                counters=tuple(row for one in whole for row in one.regions),
            )
            self._show_findings(facts)

    def _show_findings(self, facts: KnownFacts) -> None:
        with working("analysing"):
            found = findings_from(self._answers, facts)
        self.document |= found.to_json()
        if not self._as_json:
            print_findings(stdout(), found)
            print_unknown_overhead(self._trace)

    def show_analysis(self, name: str) -> None:
        analysis = ANALYSES[name]
        if self._trace.aggregated and analysis.needs_timeline:
            raise UsageError(f"--show {name}: {NO_TIMELINE}")
        answer = self._answers.of(analysis)
        self.document.setdefault("analyses", {})[name] = answer.to_json()
        if self._as_json:
            return
        if not answer.kernels:
            stdout().print(f"{name}: {analysis.without or 'the trace has nothing that it could be computed from'}")
        for kernel, one in answer.kernels.items():
            stdout().print(answer_table(analysis.table(kernel, one)))
