"""`warplens run`: run a Python program unchanged and record its kernels."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from warplens.analyse.hang import Hang
from warplens.commands.shared import kernel_listing
from warplens.commands.shared.console import force_option, json_option, merge_variants_option, print_json, stderr
from warplens.commands.shared.job_report import describe_job, describe_rank, is_speaker, rank_documents, summaries
from warplens.commands.shared.program_command import ProgramCommand, program_options, target_program
from warplens.commands.shared.quantities import byte_count, count, numbers, seconds, share
from warplens.commands.shared.run_report import describe, document, hang_document
from warplens.errors import UsageError, WarplensError
from warplens.files import check_writable
from warplens.options import COLD, LEAST_TRACE_BYTES, Options
from warplens.profiling.explain import no_gpu
from warplens.profiling.job_ranks import JobRank, wants_rank
from warplens.profiling.profile import Profile
from warplens.runner.child_ranks import followed_processes
from warplens.runner.companion_base import COMPANIONS, Companion, CompanionReport, open_companion
from warplens.runner.compiled_program import become, is_compiled
from warplens.runner.profile_request import ProfileRequest
from warplens.runner.program import Outcome, TargetProgram, execute
from warplens.runner.stdout_redirect import stdout_to_stderr
from warplens.trace.io import rank_part
from warplens.trace.rank_folder import remove_ranks

AUTO_LAUNCHES = 10
"""Default number of recorded launches per variant with automatic marks: a training run has thousands."""
AUTO_OVERHEAD = 0.05
"""Default slowdown that automatic marks may cause."""
TRACE_BYTES = 64_000_000
"""Default size of a trace, about: beyond it, only some blocks of each launch are kept."""
_PROFILE_OPTIONS = (
    "auto", "kernels", "every", "within", "from_step", "to_step", "strict", "most_marks", "least_occupancy",
    "records_per_warp", "clock", "granularity", "on_hang", "mode", "live", "stalls",
)  # fmt: skip
"""Options passed to the profile unchanged."""


def companion_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add one flag per companion tool."""
    for name, (_, help_text) in reversed(COMPANIONS.items()):
        command = click.option(f"--{name}", is_flag=True, help=help_text)(command)
    return command


@click.command("run", cls=ProgramCommand, options_metavar="[OPTIONS]")
@program_options
@click.option("--kernels", metavar="REGEX", help="Record only kernels whose name matches.  [default: all]")
@click.option(
    "--launches",
    metavar="N|all",
    help="Record this many launches of each variant: a kernel with the same code, launch options and grid.  "
    f"[default: all; {AUTO_LAUNCHES} with --auto or --region]",
)
@click.option(
    "--skip",
    metavar="N",
    help="Do not record the first N launches of each variant.  [default: the cold first one, if more follow]",
)
@click.option("--every", default=1, type=int, metavar="N", help="Record every N-th launch of each variant.")
@click.option(
    "--within",
    metavar="REGEX",
    help="Record only inside NVTX or torch.profiler.record_function ranges whose name matches.  [default: everywhere]",
)
@click.option(
    "--from-step",
    type=int,
    metavar="N",
    help="Record from this step on, counted from 0; the program calls wl.step() after each.  [default: the first]",
)
@click.option("--to-step", type=int, metavar="N", help="Record up to and including this step.  [default: the last]")
@click.option(
    "--memory",
    metavar="SIZE",
    help="Device memory for records, such as 512MB.  [default: a quarter of the device, at most half of what is free]",
)
@click.option(
    "--trace-size",
    metavar="SIZE",
    help="Keep the trace within about this size: beyond it, keep only some blocks of each launch.  "
    f"[default: {TRACE_BYTES // 10**6}MB; no limit with --blocks]",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Trace file to write; in a job of several ranks a folder.  [default: PROGRAM.warplens]",
)
@click.option(
    "--ranks",
    metavar="A,B-C|sample:N",
    help="In a job of several ranks, profile only these, or N of them spread evenly.  [default: all]",
)
@force_option
@click.option("--list-kernels", is_flag=True, help="List the kernels that ran, with counts and times; record nothing.")
@click.option("--dump-ir", metavar="DIR", help="Write the TTGIR of each Triton kernel to DIR, to mark it by hand.")
@click.option("--override", metavar="DIR", help="Compile the edited files of --dump-ir in DIR instead of the kernels.")
@click.option("--strict", is_flag=True, help="Fail if nothing but the lifetimes of a kernel's warps could be recorded.")
@click.option(
    "--overhead",
    metavar="SHARE",
    help="Maximum slowdown that marks may cause, such as 5%, or `any`. A variant above it records fewer blocks, then "
    "fewer regions, and last only the lifetimes of its warps.  "
    f"[default: {AUTO_OVERHEAD:.0%} with --auto or --region, else any]",
)
@click.option(
    "--records-per-warp",
    type=int,
    metavar="N",
    help="Buffer size: records to keep per warp.  [default: chosen per kernel]",
)
@click.option(
    "--full",
    metavar="stop|ring",
    help="When a buffer is full: keep the first records (stop) or the latest (ring).  "
    "[default: stop; ring with --live]",
)
@click.option(
    "--mode",
    default="trace",
    metavar="trace|aggregate",
    help="Keep every record (trace), or only statistics per warp and region (aggregate), whose size does not grow with "
    "the run: for long and persistent kernels.",
)
@click.option("--clock", default="32", metavar="32|64", help="Clock bits stored in each record.")
@click.option(
    "--granularity",
    default="warp",
    metavar="warp|warpgroup|block",
    help="Record one track per warp, warp group or block.",
)
@click.option(
    "--blocks",
    metavar="all|N|A-B|A,B",
    help="Record all blocks, the first N, or those with these numbers, whatever the size of the trace.  "
    "[default: as many as --trace-size allows]",
)
@click.option("--warps", metavar="A-B|A,B", help="Record only the warps with these numbers.  [default: all]")
@click.option(
    "--watch",
    metavar="TIME",
    help="If a launch takes longer than TIME, such as 30s or 2m, print where its warps are and write the trace while "
    "it runs. Each record is then stored at its mark, which slows marks down.  [default: off]",
)
@click.option(
    "--on-hang",
    metavar="continue|kill",
    help="What to do with the program after --watch reports a hang.  [default: continue; kill after Ctrl-C or SIGTERM]",
)
@click.option(
    "--live",
    is_flag=True,
    help="Show kernels, regions and warps while the program runs, in a browser at the address that is printed; "
    "`warplens view --live` finds it too. Each record is then stored at its mark, which slows marks down.",
)
@click.option(
    "--stalls",
    is_flag=True,
    help="Sample the stall reasons of each region in the same run, with CUPTI's PC sampling; no Nsight Compute needed.",
)
@merge_variants_option
@companion_options
@json_option
def command(
    module: str | None,
    output: str | None,
    force: bool,
    list_kernels: bool,
    as_json: bool,
    program: tuple[str, ...],
    **given: Any,
) -> int:
    """Run SCRIPT unchanged, record what happens inside its GPU kernels, and print a summary.

    Options go before SCRIPT; everything after it is passed to the script. The exit code is that of the script.

    \b
    Examples:
      warplens run --auto train.py --steps 3
      warplens run --list-kernels train.py
      warplens run --kernels 'attn.*' --auto loads,mma,waits --launches 5 -o attn.warplens train.py
      warplens run --auto --within 'forward' --from-step 10 --to-step 12 train.py
      warplens run --region softmax=attn.py:120-134 -m package.train
    """
    marks_given = bool(given["auto"] or given["lines"]) and not list_kernels
    target = target_program("run", module, program, marks_given=marks_given)
    if list_kernels:
        return kernel_listing.run_and_list(target, kernels=given["kernels"], as_json=as_json)
    path = Path(output or f"{target.name}.warplens")
    chosen = given.pop("ranks")
    options = _options(given)
    alone = not JobRank.here().is_one_of_many
    if alone and path.is_dir():
        Options.of(options)  # a mistake in them is told before anything is removed
        check_writable(path, force=force)
        remove_ranks(path)
    profile = Profile(path, whole_program=True, **options)
    check_writable(path, force=force or not alone)
    if chosen is not None and not wants_rank(chosen, profile.job) and not alone:
        return _run_without(target)
    if profile.job.is_one_of_many:
        path = rank_part(path, profile.rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        check_writable(path, force=force)
    if not profile.enabled:
        stderr().print("profiling is off (WARPLENS=0): running the program without it")
        return _run_without(target)
    if not target.module and is_compiled(target.target):
        _become(target, path, given, as_json=as_json)
    companions = [open_companion(name, target, profile, path, force=force) for name in COMPANIONS if given[name]]
    document_to = os.dup(1) if as_json else None
    request = _request(target, profile, given, ranks=chosen, force=force and not alone)
    with stdout_to_stderr(as_json):
        outcome, problem = _run(target, profile, request, companions, document_to)
    if document_to is not None:
        os.close(document_to)
    with stdout_to_stderr(True):
        reports, failures = _companion_reports(companions)
    ranks = summaries(request.path) if alone else []
    if any(one.spans for one in ranks) and not profile.seen:
        problem = None  # the kernels are those of other processes
    if as_json:
        found = document(target, profile, outcome, problem, reports, merge_variants=given["merge_variants"])
        print_json(found | ({"file": str(request.path), "ranks": rank_documents(ranks)} if ranks else {}))
    elif profile.job.is_one_of_many and not ranks and not is_speaker(profile, chosen):
        describe_rank(profile)
    else:
        describe(
            profile,
            outcome,
            reports,
            launches_given=given["launches"] is not None,
            merge_variants=given["merge_variants"],
        )
        if ranks:
            describe_job(request.path, ranks)
    whose = f"rank {profile.rank}: " if profile.job.is_one_of_many else ""
    for one in (problem, *failures):
        if one is not None:
            stderr().print(f"warplens: {whose}{one}", markup=False, soft_wrap=True)
    if profile.job.is_one_of_many:
        return outcome.code  # launchers end all ranks of a job if one fails, and others may have what was asked for
    return outcome.code or next((one.exit_code for one in (problem, *failures) if one is not None), 0)


def _request(
    target: TargetProgram, profile: Profile, given: dict[str, Any], *, ranks: str | None, force: bool
) -> ProfileRequest:
    """What processes that the program starts are asked to record. Companion tools run in this process only."""
    assert profile.path is not None
    options = {**_options(given), "torch": False}
    program = (target.target, *target.arguments)
    return ProfileRequest(profile.path, options, program, ranks=ranks, size=profile.job.size, force=force)


def _run_without(target: TargetProgram) -> int:
    """Run the program as if there were no warplens."""
    if not target.module and is_compiled(target.target):
        os.execv(target.target, [target.target, *target.arguments])
    return execute(target).code


def _become(target: TargetProgram, path: Path, given: dict[str, Any], *, as_json: bool) -> NoReturn:
    """Turn this process into a compiled program, which records and reports by itself."""
    if asked := [f"--{name}" for name in COMPANIONS if given[name]]:
        raise UsageError(f"{' and '.join(asked)}: only for Python programs; run the tool on {target.target} itself")
    output = None
    if as_json:
        output = os.dup(1)
        os.set_inheritable(output, True)
        os.dup2(2, 1)
    become(
        ProfileRequest(
            path.absolute(), _options(given), (target.target, *target.arguments), output,
            given["launches"] is not None, given["merge_variants"],
        )
    )  # fmt: skip


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Convert the command line to options of the profile."""
    warps, blocks, skip = given["warps"], given["blocks"], given["skip"]
    folders = {name: given[name] for name in ("dump_ir", "override") if given[name] is not None}
    return {
        **{name: given[name] for name in _PROFILE_OPTIONS},
        **folders,
        "full": given["full"] or ("ring" if given["live"] else "stop"),
        "launches": _launches(given),
        "overhead": _overhead(given),
        "skip": COLD if skip is None else count(skip, "--skip", "a number of launches, 0 or more"),
        "memory": None if given["memory"] is None else byte_count(given["memory"], "--memory"),
        "trace_bytes": _trace_bytes(given),
        "regions": given["lines"] or None,
        "torch": given["torch"],
        "watch": None if given["watch"] is None else seconds(given["watch"], "--watch"),
        "warps": None if warps is None else numbers(warps, "--warps"),
        "blocks": None if blocks in (None, "all") else _blocks(blocks),
    }


def _launches(given: dict[str, Any]) -> int | None:
    text = given["launches"]
    if text is None:
        return AUTO_LAUNCHES if given["auto"] or given["lines"] else None
    return None if text == "all" else count(text, "--launches", "a number or `all`")


def _overhead(given: dict[str, Any]) -> float | None:
    text = given["overhead"]
    if text is None:
        return AUTO_OVERHEAD if given["auto"] or given["lines"] else None
    if text == "any":
        return None
    limit = share(text, "--overhead", "a share such as 5% or 0.05, or `any`")
    if limit > 1 and not text.endswith("%"):
        raise UsageError(f"--overhead {text}: is {100 * limit:g} %; write {text}% for {text} percent")
    return limit


def _trace_bytes(given: dict[str, Any]) -> int | None:
    """The bound on the trace's size. Who chooses the blocks has chosen its size."""
    if given["trace_size"] is None:
        return TRACE_BYTES if given["blocks"] is None else None
    if given["blocks"] == "all":
        raise UsageError("--blocks all and --trace-size exclude each other: one keeps all blocks, the other drops some")
    size = byte_count(given["trace_size"], "--trace-size")
    if size < LEAST_TRACE_BYTES:
        raise UsageError(f"--trace-size {given['trace_size']}: must be at least {LEAST_TRACE_BYTES:,} bytes")
    return size


def _blocks(text: str) -> int | list[int]:
    chosen = numbers(text, "--blocks", "`all`, a number, or numbers and ranges, such as 0,4-7")
    return chosen if set(",-") & set(text) else chosen[0]


def _run(
    program: TargetProgram,
    profile: Profile,
    request: ProfileRequest,
    companions: Sequence[Companion],
    document_to: int | None,
) -> tuple[Outcome, WarplensError | None]:
    """Run the program inside the profile; return how it ended and what went wrong with the profile, if anything."""
    outcome = Outcome()
    try:
        with profile, followed_processes(request, profile), ExitStack() as stack:
            if profile.hang_watch is not None and document_to is not None:
                profile.hang_watch.before_end = partial(_print_hangs, program, profile, document_to)
            for one in companions:
                stack.enter_context(one.around())
            outcome = execute(program)
    except WarplensError as error:
        # The program failed with a warplens error, which already explains why nothing was recorded.
        if isinstance(outcome.error, WarplensError):
            return outcome, None
        if outcome.cut_short and not profile.seen:
            ended = type(outcome.error).__name__
            why = "" if isinstance(outcome.error, ImportError | SyntaxError | NameError) else no_gpu()
            problem = f"nothing was recorded: {ended} ended the program before its first kernel{why and f'; {why}'}"
            return outcome, WarplensError(problem)
        return outcome, error
    return outcome, None


def _print_hangs(
    program: TargetProgram, profile: Profile, document_to: int, code: int, found: tuple[Hang, ...]
) -> None:
    """Print the JSON document of a program that is ended because a kernel hangs."""
    with os.fdopen(os.dup(document_to), "w") as out:
        json.dump(hang_document(program, profile, code, found), out)
        out.write("\n")


def _companion_reports(companions: Sequence[Companion]) -> tuple[list[CompanionReport], list[WarplensError]]:
    """Collect the companions' reports, and the errors of those that failed."""
    reports, failures = [], []
    for one in companions:
        try:
            reports.append(one.after())
        except WarplensError as error:
            failures.append(error)
    return reports, failures
