"""`warplens sensitivity`: insert delays to measure which regions a kernel's time depends on."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from warplens.analyse.region_sensitivity import RegionSensitivity, Sensitivity
from warplens.commands.shared.console import force_option, json_option, print_hanging, print_json, stderr, stdout, table
from warplens.commands.shared.program_command import MixedProgramCommand, program_options, target_program
from warplens.commands.shared.quantities import count
from warplens.errors import UsageError, WarplensError
from warplens.files import check_writable
from warplens.profiling.delay_runs import experiment_options, with_sensitivity
from warplens.profiling.experiment import ROUNDS, Experiment
from warplens.runner.program import Outcome, TargetProgram, execute
from warplens.runner.stdout_redirect import stdout_to_stderr
from warplens.wording import duration, percent, plural


@click.command("sensitivity", cls=MixedProgramCommand, options_metavar="[OPTIONS]")
@program_options
@click.option("--kernels", metavar="REGEX", help="Delay only kernels whose name matches.  [default: all]")
@click.option(
    "--regions",
    metavar="A,B",
    help="Delay only these regions: names or regular expressions.  [default: all that are recorded]",
)
@click.option(
    "--delays",
    metavar="CYCLES,...",
    help="Delays to try besides 0, in cycles per execution of the region.  [default: chosen by the kernel's length]",
)
@click.option("--rounds", default=ROUNDS, metavar="N", help="Number of times to try each delay in each region.")
@click.option(
    "--repeat", default=1, metavar="N", help="Run the whole program up to N times, if one run has too few launches."
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Also write the recorded launches with the result as a trace.  [default: none]",
)
@force_option
@json_option
def command(
    module: str | None, output: str | None, force: bool, as_json: bool, program: tuple[str, ...], **given: Any
) -> int:
    """Run SCRIPT and delay the regions of its kernels, one region at a time.

    No launch is repeated: a few are recorded, and the others run with a delay that varies from launch to launch. The
    slope says how much of a cycle spent in a region reaches the end of the kernel: 0 means that other work hides it, 1
    that the kernel waits for all of it, more than 1 that warps take turns in it.

    Options may follow SCRIPT; other words after it, and everything after `--`, are passed to the script. The exit code
    is that of the script.

    \b
    Examples:
      warplens sensitivity bench.py --kernels attn
      warplens sensitivity -o matmul.warplens train.py --kernels 'matmul.*' --auto --regions load,dot
      warplens sensitivity --kernels attn bench.py -- --json
    """
    target = target_program("sensitivity", module, program)
    path = None if output is None else check_writable(Path(output), force=force)
    if given["repeat"] < 1:
        raise UsageError(f"--repeat {given['repeat']}: must be at least 1")
    experiment = Experiment(_options(given), alone=False)
    if not experiment.enabled:
        stderr().print("profiling is off (WARPLENS=0): running the program without it")
        return execute(target).code
    with stdout_to_stderr(as_json):
        outcome, runs = _run(target, experiment, given["repeat"])
    if outcome.code:
        stderr().print(f"warplens: the program ended with code {outcome.code}; nothing is reported", markup=False)
        return outcome.code
    answer = experiment.answer()
    if path is not None and experiment.trace is not None:
        with_sensitivity(experiment.trace, answer).save(path)
    if as_json:
        print_json(answer.to_json() | {"output": None if path is None else str(path)})
    else:
        show(answer)
    _refuse_silence(answer, experiment, runs)
    return 0


def _options(given: dict[str, Any]) -> Any:
    names = None if given["regions"] is None else [name.strip() for name in given["regions"].split(",")]
    profile: dict[str, Any] = {name: given[name] for name in ("auto", "most_marks", "least_occupancy")}
    if given["lines"]:
        profile["lines"] = given["lines"]
    delays = given["delays"]
    if delays is not None:
        delays = [count(part.strip(), "--delays", "cycles, such as 64,128,256") for part in delays.split(",")]
    return experiment_options(given["kernels"], names, delays, given["rounds"], profile)


def _run(target: TargetProgram, experiment: Experiment, repeat: int) -> tuple[Outcome, int]:
    """Run the program until the experiment has all its launches; return how it ended, and how often it ran."""
    outcome, runs = Outcome(), 0
    experiment.start()
    try:
        while runs < repeat and not experiment.done and not outcome.code:
            outcome, runs = execute(target), runs + 1
    finally:
        experiment.stop(outcome.error if outcome.code else None)
    return outcome, runs


def _refuse_silence(answer: Sensitivity, experiment: Experiment, runs: int) -> None:
    """Say what to do where launches are missing; fail where no region has a slope."""
    short = [one for one in answer.regions if "too few launches" in one.reason]
    if short:
        seen = max(1, experiment.launches // max(runs, 1))
        repeat = -(-experiment.needed // seen)
        text = (
            f"{plural(len(short), 'region')} without an answer: the program made {experiment.launches} of the "
            f"{experiment.needed} launches that all regions need; --repeat {repeat} runs it that often, "
            "--rounds and --regions ask for less"
        )
        stderr().print(f"warplens: {text}", markup=False, soft_wrap=True)
    if all(one.slope is None for one in answer.regions):
        raise WarplensError("no region has an answer" + (f": {answer.regions[0].reason}" if answer.regions else ""))


def show(answer: Sensitivity) -> None:
    """Print the result: a table for each kernel variant, and why regions have no slope."""
    console = stdout()
    for (_, label), group in itertools.groupby(answer.regions, key=lambda one: (one.kernel, one.variant)):
        some = list(group)
        measured = [one for one in some if one.slope is not None]
        if measured:
            console.print(_table(label, measured))
        for one in some:
            if one.slope is None:
                print_hanging(console, f"  {escape(one.region)}: ", f"[yellow]not measured[/]: {escape(one.reason)}")
    for note in dict.fromkeys((*answer.notes, *(note for one in answer.regions for note in one.notes))):
        print_hanging(console, "  note: ", escape(note))


def _table(label: str, rows: list[RegionSensitivity]) -> Any:
    base = min(one.base_ns for one in rows)
    return table(
        f"{label}: {duration(base)}; what a cycle in each region adds to the kernel",
        [
            ("region", lambda one: escape(one.region)),
            ("slope", lambda one: f"{one.slope:.2f}"),
            ("95 % interval", lambda one: f"{one.low:.2f} .. {one.high:.2f}"),
            ("verdict", lambda one: one.verdict),
            ("path share", lambda one: "" if one.path_share is None else percent(one.path_share)),
            ("hidden up to", lambda one: f"{one.hidden_up_to:,.0f} cycles" if one.hidden_up_to else ""),
            ("delays", lambda one: f"{min(one.delays):,.0f} .. {max(one.delays):,.0f}"),
            ("executions", lambda one: f"{one.executions:,.0f}"),
            ("spread", lambda one: percent(one.base_spread)),
            ("probe", lambda one: "" if one.probe_cost is None else f"{100 * one.probe_cost:+.1f} %"),
        ],
        rows,
        spare=("executions", "spread", "probe", "delays"),
    )
