"""`warplens findings`: what costs time in the kernels of a trace, and what to do about it."""

from __future__ import annotations

from typing import Any

import click
from rich.markup import escape

from warplens.analyse.analysis import Answers
from warplens.analyse.evidence_packet import LEAST_BUDGET, evidence_packet
from warplens.analyse.findings import findings_from
from warplens.analyse.kernel_variants import kernel_variants
from warplens.analyse.sample_share import sample_line
from warplens.analyse.trace_quality import time_line, warnings_of
from warplens.commands.shared.analysis_tables import print_findings, print_unknown_overhead
from warplens.commands.shared.console import json_option, print_json, stdout, working
from warplens.commands.shared.dataset_options import engine_for, engine_option
from warplens.commands.shared.finding_options import fact_options, known_facts
from warplens.commands.shared.number_range import number_range
from warplens.commands.shared.rank_options import chosen_ranks, collective_option, ranks_option, read_ranks
from warplens.engines.queries import dataset_findings
from warplens.errors import ThresholdCrossed, UsageError, did_you_mean
from warplens.trace.dataset import RowSelection
from warplens.wording import percent

_RANK_BY_RANK = "judged rank by rank, in bounded memory; late ranks are judged over all ranks"


@click.command("findings")
@click.argument("trace")
@click.option("--kernel", metavar="NAME", help="Show findings about this kernel only.")
@fact_options
@collective_option
@click.option("--all", "show_all", is_flag=True, help="Also list the causes that the evidence refutes, and why.")
@click.option(
    "--budget",
    type=number_range(int, LEAST_BUDGET),
    metavar="TOKENS",
    help="With --json, print the evidence packet: one document of at most this many tokens (see docs/agents.md).",
)
@ranks_option
@engine_option
@click.option("--fail", is_flag=True, help="Exit with code 3 if there is something to fix.")
@json_option
def command(
    trace: str,
    kernel: str | None,
    show_all: bool,
    budget: int | None,
    ranks: str | None,
    engine: str | None,
    fail: bool,
    as_json: bool,
    collective: str | None,
    **given: Any,
) -> None:
    """Show what costs time in each kernel variant of TRACE, the largest gain first.

    Each finding says what costs time and where, the evidence, how much of the kernel's time removing the cause would
    save, what to try, and what would refute it. Causes that the trace cannot confirm or refute are listed with what to
    record. `diagnose`, `stats --findings` and the report show the same findings.

    \b
    Examples:
      warplens findings t.warplens
      warplens findings t.warplens --bytes 2*4096*4096 --ncu t.ncu-rep
    """
    if budget is not None and not as_json:
        raise UsageError("--budget bounds the document that --json prints; give both")
    runner, datasets = engine_for([trace], engine)
    if runner is not None and budget is not None:
        raise UsageError("--budget needs the whole trace; leave out --engine, or name one rank's file")
    loaded = read_ranks(trace, ranks) if runner is None else datasets[0].outline()
    known = [*loaded.kernels, *(one.label for one in kernel_variants(loaded.meta.launches))]
    if kernel is not None and kernel not in known:
        raise UsageError(f"--kernel {kernel}: no such kernel in this trace{did_you_mean(kernel, dict.fromkeys(known))}")
    facts = known_facts(given, loaded, kernel)
    named = kernel is not None and kernel in loaded.kernels
    part = loaded
    with working("analysing"):
        if runner is not None:
            chosen = RowSelection.of(kernel=[kernel] if kernel and named else None, rank=chosen_ranks(trace, ranks))
            asked = {"waits": given["waits"], "given": facts, "collectives": collective}
            found = dataset_findings(datasets[0], runner, selection=chosen, **asked)
        else:
            part = loaded.select(kernel=[kernel]) if kernel and named else loaded
            found = findings_from(Answers(part, given["waits"], collectives=collective), facts)
        found = found.of(kernel) if kernel and not named else found
    if as_json and budget is not None:
        print_json(evidence_packet(part, found, file=trace, budget=budget))
    elif as_json:
        print_json({"file": trace, **found.to_json()})
    else:
        console = stdout()
        if runner is not None:
            console.print(f"[yellow]{_RANK_BY_RANK}[/]", soft_wrap=True)
        for line in filter(None, [sample_line(part.meta.launches), time_line(part), *warnings_of(loaded)]):
            console.print(f"[yellow]{escape(line)}[/]", soft_wrap=True)
        print_findings(console, found, refuted=show_all)
        print_unknown_overhead(part)
    if fail and found.problems:
        first = found.problems[0]
        raise ThresholdCrossed(
            f"{first.kernel}: {first.kind} ({percent(first.gain.low)} to {percent(first.gain.high)})"
        )
