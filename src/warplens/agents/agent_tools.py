"""What an agent can ask. Every answer fits a budget, carries units, and says what to do next."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from warplens.agents.bounded_answer import BUDGET, check_budget, page, shortened
from warplens.agents.program_runs import SHOWN, run_program, run_verb
from warplens.agents.workspace import Workspace
from warplens.analyse.diff import ChangeVerdict, Difference, diff
from warplens.analyse.evidence_packet import LEAST_BUDGET, evidence_packet, launch_facts, tokens
from warplens.analyse.findings import findings
from warplens.analyse.kernel_variants import kernel_variants
from warplens.analyse.line_times import last_line, parse
from warplens.analyse.resample import Interval
from warplens.analyse.slowdown import slowdown_of
from warplens.analyse.source_files import find_source
from warplens.errors import WarplensError, did_you_mean
from warplens.trace.model import Trace

Answer = dict[str, Any]
_SHARE = "share of all warp time"
_COLUMNS = ("region", "kernel", "variant", "count", "mean", "std", "p50", "p95", "p99", "mean_ns", "share")
LONGEST_RUN = 3600.0
_NEXT_TOKENS = 150
"""What the next step may take of the budget of findings."""
_NEXT_AFTER = {
    "FASTER": "keep the change if the result is still right; get_findings of the new trace for what to do next",
    "UNSURE": "record more launches of both (launches=20) and compare again",
}


class Tools:
    """The tools of one server."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def list_traces(self, cursor: str = "", budget: int = BUDGET) -> Answer:
        """List the traces in the opened folder, the newest first: file, size and age."""
        now = time.time()
        files = [
            {
                "trace": self.workspace.name(path),
                "bytes": path.stat().st_size,
                "age_s": round(now - path.stat().st_mtime),
            }
            for path in self.workspace.traces()
        ]
        step = "get_findings on the newest trace" if files else "profile a program, or record one with `warplens run`"
        return _paged("traces", files, cursor, budget, units={"age_s": "seconds"}, next=step)

    def list_kernels(self, trace: str, cursor: str = "", budget: int = BUDGET) -> Answer:
        """List the kernel variants of a trace: launches, time per launch, what profiling costs, regions."""
        loaded = self.workspace.trace(trace)
        table = loaded.stats()
        rows: list[Answer] = []
        for one in kernel_variants(loaded.meta.launches):
            regions = [row.region for row in table if row.variant in ("", one.label)]
            rows.append({"kernel": one.label, **launch_facts(one), "regions": regions})
        rows.sort(key=lambda row: -row["time_ns"]["median"] * row["launches_made"])
        units = {"time_ns": "ns per launch, recorded", "slowdown": "time with marks by time without"}
        return _paged("kernels", rows, cursor, budget, units=units, next="get_findings for what costs time")

    def get_findings(self, trace: str, kernel: str = "", budget: int = BUDGET) -> Answer:
        """Say what costs time in a trace: findings with evidence and gain, what is undecided, what was not measured.

        trace is a name that list_traces or profile gave; kernel limits the answer to one kernel.
        """
        loaded = self.workspace.trace(trace)
        part = _of_kernel(loaded, kernel) if kernel else loaded
        room = check_budget(budget) - _NEXT_TOKENS
        if room < LEAST_BUDGET:
            raise WarplensError(f"budget={budget}: findings take at least {LEAST_BUDGET + _NEXT_TOKENS} tokens")
        packet = evidence_packet(part, findings(part), file=trace, budget=room)
        first = packet["findings"][0] if packet["findings"] else {}
        step = "nothing was found; profile with automatic_marks, or mark more of the kernel"
        if first:
            where = f"read_source of region {first['region']}; " if first.get("region") else ""
            step = f"{where}{first['advice']} Then profile again and compare the two traces."
        return {**shortened(packet, 600), "next": shortened(step, 400)}

    def region_statistics(
        self, trace: str, region: str = "", kernel: str = "", cursor: str = "", budget: int = BUDGET
    ) -> Answer:
        """Show the durations of the regions of a trace, or of one: count, mean, spread and percentiles in cycles."""
        loaded = self.workspace.trace(trace)
        part = _of_kernel(loaded, kernel) if kernel else loaded
        if region and region not in part.regions:
            raise WarplensError(f"{trace} has no region {region!r}{did_you_mean(region, part.regions)}")
        table = part.stats()
        rows = [asdict(row) for row in table.sorted("share").rows if not region or row.region == region]
        shown = [{name: row[name] for name in _COLUMNS if name in row} for row in rows]
        units = {
            "mean, p50, p95, p99": "cycles per execution",
            "mean_ns": "ns",
            "share": _SHARE,
            "std": "cycles, between executions",
        }
        step = "read_source shows the code of a region; verify_regions checks it against the machine code"
        answer = _paged("regions", shown, cursor, budget, units=units, next=step)
        return {**answer, "sample": table.sample, "profiling_cost": _cost(part)}

    def compare(self, before: str, after: str, cursor: str = "", budget: int = BUDGET) -> Answer:
        """Compare two traces region by region: verdict on the kernels' time, changes with confidence intervals."""
        result = diff(self.workspace.trace(before), self.workspace.trace(after))
        kernels: list[Answer] = [
            {"kernel": one.kernel, "verdict": one.verdict.value, "before_ns": one.before_ns, "after_ns": one.after_ns,
             "change": _interval(one.interval), "launches": list(one.launches)}
            for one in result.kernels
        ]  # fmt: skip
        rows: list[Answer] = [
            {"region": one.region, "kernel": one.kernel, "verdict": one.verdict.value,
             "mean_before": one.before.mean if one.before else None,
             "mean_after": one.after.mean if one.after else None,
             "mean_change": _interval(one.changes.get("mean")), "note": one.note}
            for one in result
        ]  # fmt: skip
        verdict = _of_kernels(result)
        step = _NEXT_AFTER.get(verdict.value, "revert the change, or get_findings of the new trace")
        units = {
            "change": "relative; low and high are its confidence interval",
            "before_ns, after_ns": "ns per launch",
            "mean_before, mean_after": "cycles per execution of the region",
        }
        answer = _paged("regions", rows, cursor, budget, units=units, next=step)
        return {"verdict": verdict.value, "kernels": shortened(kernels[:20]), **answer}

    def read_source(self, trace: str, region: str, kernel: str = "", lines: int = 12) -> Answer:
        """Show the source around a region, as far as it lies in the opened folder; says whether it changed since."""
        loaded = self.workspace.trace(trace)
        meta = loaded.meta
        places = meta.kernel_locations.get(kernel, {}) if kernel else {}
        place = places.get(region) or meta.locations.get(region)
        if place is None:
            raise WarplensError(f"{trace} has no line of region {region!r}{did_you_mean(region, meta.locations)}")
        file, at = parse(place) or ("", 0)
        found = find_source(
            file, [folder for folder in (self.workspace.root, self.workspace.run_in) if folder], meta.source_hashes
        )
        if found is None or not at:
            raise WarplensError(f"the source of {region!r} is {place}, which is not in the opened folder")
        around = max(1, min(lines, 60))
        first, last = max(at - around, 1), last_line(region, at) + around
        text = [f"{first + i:5d}  {line}" for i, line in enumerate(found.lines[first - 1 : last])]
        return {
            "region": region, "line": place, "changed_since_recorded": found.changed,
            "source": shortened(text, 200),
            "next": "change the code, profile again, compare the two traces",
        }  # fmt: skip

    def verify_regions(self, trace: str, cursor: str = "", budget: int = BUDGET) -> Answer:
        """Check the regions of a trace against the machine code: what was moved in or out, and warplens's own share."""
        _, document, said = run_verb("verify", [str(self.workspace.path(trace))], self.workspace.root, 120)
        kernels = document.get("kernels", [document] if document else [])
        answer = _paged(
            "kernels", kernels, cursor, budget, units={"purity": "share of a region's instructions"}, next=""
        )
        return {**answer, "said": said[-400:], "next": "distrust findings about regions whose main work was moved out"}

    def profile(
        self,
        script: str,
        arguments: Sequence[str] = (),
        kernels: str = "",
        launches: int = 10,
        automatic_marks: bool = True,
        output: str = "",
        timeout_s: float = 600.0,
    ) -> Answer:
        """Run a Python program under `warplens run` in the folder that was allowed, and return its trace's name.

        script is a path in that folder; kernels is a regular expression for the kernels to record; launches is how many
        launches of each variant to record, at least 5 for compare. A program that writes traces itself is run as it is
        if launches is 0. automatic_marks is for kernels without marks of their own.
        """
        program = self.workspace.program(script)
        folder = program.parent
        before = {path: path.stat().st_mtime_ns for path in self.workspace.traces()}
        limit = min(max(timeout_s, 1.0), LONGEST_RUN)
        if launches == 0:
            code, said, problems = run_program([sys.executable, str(program), *arguments], folder, limit)
            document: Answer = {"exit_code": code}
            said = (said + problems)[-SHOWN:]
        else:
            target = folder / (output or f"{program.stem}-{time.strftime('%H%M%S')}.warplens")
            options = ["--launches", str(launches), "-o", str(target), *(["--kernels", kernels] if kernels else [])]
            options += ["--auto"] if automatic_marks else []
            code, document, said = run_verb("run", [*options, str(program), *arguments], folder, limit)
        made = [
            self.workspace.name(path) for path in self.workspace.traces() if path.stat().st_mtime_ns != before.get(path)
        ]
        kept = {name: document[name] for name in ("kernels", "problem", "losses") if name in document}
        if tokens(kept) > BUDGET:
            kept = {"kernels": len(document.get("kernels", []))}
        return {
            "exit_code": code, "traces": made, **shortened(kept), "output_end": said,
            "next": "get_findings of the trace" if made else "no trace was written: see problem and output_end",
        }  # fmt: skip

    def sensitivity(
        self,
        script: str,
        arguments: Sequence[str] = (),
        kernels: str = "",
        regions: str = "",
        timeout_s: float = 900.0,
        budget: int = BUDGET,
    ) -> Answer:
        """Measure with delays how much of a cycle in each region reaches the kernel's end (0 hidden, 1 critical).

        script is a path in the folder that was allowed; kernels and regions are regular expressions.
        """
        program = self.workspace.program(script)
        options = ["--kernels", kernels] if kernels else []
        options += ["--regions", regions] if regions else []
        limit = min(max(timeout_s, 1.0), LONGEST_RUN)
        code, document, said = run_verb("sensitivity", [*options, str(program), *arguments], program.parent, limit)
        rows = document.get("regions", [])
        units = {"slope": "kernel cycles per cycle of delay; low and high are its confidence interval"}
        answer = _paged(
            "regions", rows, "", budget, units=units, next="work on the region with the largest slope first"
        )
        return {**answer, "exit_code": code, "output_end": said[-400:]}


def _paged(name: str, entries: Sequence[Any], cursor: str, budget: int, *, units: dict[str, str], next: str) -> Answer:
    part, rest = page([shortened(entry) for entry in entries], cursor, check_budget(budget))
    return {name: part, "total": len(entries), "cursor": rest, "units": units, "next": next}


def _of_kernel(trace: Trace, kernel: str) -> Trace:
    variants = kernel_variants(trace.meta.launches)
    chosen = [one for one in variants if kernel in (one.label, one.kernel)]
    if not chosen:
        names = [one.label for one in variants]
        raise WarplensError(f"there is no kernel {kernel!r}{did_you_mean(kernel, names)}")
    return trace.select(launch=[info.launch for one in chosen for info in one.launches])


def _of_kernels(result: Difference) -> ChangeVerdict:
    """The verdict on the time of the kernels, the worst first: a kernel may be faster though a region of it is not."""
    seen = {one.verdict for one in result.kernels}
    ranked = (ChangeVerdict.SLOWER, ChangeVerdict.FASTER, ChangeVerdict.UNSURE)
    return next((one for one in ranked if one in seen), ChangeVerdict.SAME if seen else result.verdict)


def _cost(trace: Trace) -> Answer | None:
    slowdown = slowdown_of(trace.meta.launches)
    return None if slowdown is None else slowdown.to_json()


def _interval(change: Interval | None) -> Answer | None:
    """A relative change; an end of its interval is None where there were no repetitions to bound it."""
    if change is None:
        return None
    return {name: value if isfinite(value) else None for name, value in asdict(change).items()}
