"""`warplens verify`: check in the machine code that each region times what it marks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import click

from warplens.analyse.mark_cost import VariantCost, variant_costs
from warplens.analyse.region_purity import verified_kernels
from warplens.commands.shared.console import json_option, print_json, read_trace, stderr, stdout, working
from warplens.commands.shared.number_range import number_range
from warplens.commands.shared.program_command import ProgramCommand
from warplens.commands.shared.verification_tables import cost_table, print_verification
from warplens.errors import UsageError, WarplensError
from warplens.profiling.profile import Profile
from warplens.profiling.region_check import collected_codes, verify_all
from warplens.ptx.symbols import plain_name
from warplens.runner.program import TargetProgram, execute
from warplens.runner.stdout_redirect import stdout_to_stderr
from warplens.sass.machine_code import MachineCode, verify_code
from warplens.sass.program_binary import is_binary, read_binary
from warplens.sass.verified_regions import KernelVerification
from warplens.wording import percent

_SECONDS = 300.0
"""How long a program's kernels may take to verify."""
_CROSSED = 3


class _VerifyCommand(ProgramCommand):
    """A command whose options end at a script's name, and nowhere if it is given a trace."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _, rest = self.split(args)
        is_script = bool(rest) and rest[0].endswith(".py")
        return super().parse_args(ctx, args) if is_script else click.Command.parse_args(self, ctx, args)


@click.command("verify", cls=_VerifyCommand)
@click.option("--auto", is_flag=True, help="With a script: also mark kernels automatically.")
@click.option("--kernel", "kernels", multiple=True, metavar="NAME", help="Show only this kernel (repeatable).")
@click.option(
    "--binary",
    metavar="FILE",
    help="Program or cubin to read the machine code from, for a capture of a CUDA C++ program.",
)
@click.option("--moved", is_flag=True, help="List the instructions that were moved into and out of each region.")
@click.option(
    "--least-purity",
    type=number_range(float, 0, 1),
    metavar="SHARE",
    help="Exit with code 3 if a region's purity is below this, or if most of its main work was moved out of it.",
)
@json_option
@click.argument("target")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
def command(
    target: str,
    arguments: tuple[str, ...],
    auto: bool,
    kernels: tuple[str, ...],
    binary: str | None,
    moved: bool,
    least_purity: float | None,
    as_json: bool,
) -> int:
    """Check which instructions of the machine code are between the marks of each region of TARGET.

    TARGET is a trace, a Python script to run (with ARGUMENTS), a program or library that nvcc made, or a cubin.

    \b
    Examples:
      warplens verify attention.warplens
      warplens verify --moved train.py --steps 1
      warplens verify gemm.wlcap --binary ./gemm
    """
    found, costs = _verified(target, arguments, auto, binary)
    if kernels:
        found = [one for one in found if one.kernel in kernels]
        costs = [one for one in costs if one.kernel in kernels]
        if not found:
            raise UsageError(f"--kernel {', '.join(kernels)}: {target} has no such kernel")
    bad = _violations(found, least_purity)
    if as_json:
        known = {"kernels": [one.to_json() for one in found], "costs": [one.to_json() for one in costs]}
        print_json({"target": target, **known, "violations": bad})
    else:
        console = stdout()
        for one in found:
            print_verification(console, one, moved=moved)
        if costs:
            console.print(cost_table(costs))
        for line in bad:
            stderr().print(f"FAIL {line}", markup=False, soft_wrap=True)
    return _CROSSED if bad else 0


def _verified(
    target: str, arguments: tuple[str, ...], auto: bool, binary: str | None
) -> tuple[list[KernelVerification], list[VariantCost]]:
    path = Path(target)
    if path.suffix == ".py":
        if binary:
            raise UsageError("--binary goes with a trace or capture, not with a script")
        return _of_script(target, arguments, auto), []
    if arguments:
        raise UsageError(f"{arguments[0]}: only a script takes arguments")
    if auto:
        raise UsageError("--auto goes with a script")
    if path.is_file() and is_binary(path):
        return _of_binary(target), []
    trace = read_trace(target)
    if binary:
        names = set(trace.kernels)
        found = _of_binary(binary)
        matching = [one for one in found if one.kernel in names] or found
        return matching, variant_costs(trace)
    verified = [one for each in verified_kernels(trace).values() for one in each]
    if not verified:
        if trace.launches and not any(info.clock == "gpu" for info in trace.launches):
            raise WarplensError(f"{target}: has no machine code to verify: its kernels did not run on a GPU")
        raise WarplensError(
            f"{target}: has no verification; it was recorded by an older warplens, with verify=False, or by a program "
            "of CUDA C++ (then give --binary PROGRAM)"
        )
    return verified, variant_costs(trace)


def _of_binary(path: str) -> list[KernelVerification]:
    with working(f"reading {path}"):
        codes = read_binary(path)
        if not codes:
            raise WarplensError(
                f"{path}: has no kernel with marks that can be read; compile it with `warplens nvcc -lineinfo`, or by "
                "nvcc -lineinfo if its marks record by themselves"
            )
        found = [verify_code(code, plain_name(code.symbol)) for code in codes]
    return [replace(one, source=which + one.source) for one, which in zip(found, _told_apart(codes), strict=True)]


def _told_apart(codes: list[MachineCode]) -> list[str]:
    """What tells each of the codes of one name apart: instances of a template, and copies for several architectures."""
    names = Counter(plain_name(symbol) for symbol in {code.symbol for code in codes})
    copies = Counter(code.symbol for code in codes)
    found = []
    for code in codes:
        symbol = code.symbol * (names[plain_name(code.symbol)] > 1)
        architecture = code.architecture * (copies[code.symbol] > 1)
        which = " for ".join(filter(None, (symbol, architecture)))
        found.append(f"{which}, " if which else "")
    return found


def _of_script(script: str, arguments: tuple[str, ...], auto: bool) -> list[KernelVerification]:
    """Run a script with one recorded launch of each variant, and verify what ran."""
    if not Path(script).is_file():
        raise UsageError(f"{script}: there is no such script")
    profile = Profile(whole_program=True, launches=1, auto=auto or None)
    problem: WarplensError | None = None
    with collected_codes() as codes, stdout_to_stderr(True):
        try:
            with profile:
                outcome = execute(TargetProgram(script, arguments))
        except WarplensError as error:
            problem = error
            outcome = None
    if not codes:
        raise problem or WarplensError(f"{script}: no marked kernel ran; --auto marks kernels automatically")
    if outcome is not None and outcome.code:
        stderr().print(f"warplens: {script} ended with exit code {outcome.code}", markup=False)
    with working("verifying"):
        return list(verify_all(codes, _SECONDS).values())


def _violations(found: list[KernelVerification], least: float | None) -> list[str]:
    """What fails `--least-purity`, one line each."""
    if least is None:
        return []
    lines = [f"{one.kernel}: not verified: {one.problem}" for one in found if one.problem]
    for one in found:
        for region in one.regions:
            if region.flag:
                lines.append(f"{one.kernel}: {region.region}: {region.flag}")
            elif region.purity < least:
                lines.append(f"{one.kernel}: {region.region}: purity {percent(region.purity)} < {percent(least)}")
    return lines
