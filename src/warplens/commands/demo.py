"""`warplens demo`: profile a small kernel, with or without a GPU, and show the results."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
from rich.markup import escape

from warplens import samples
from warplens.analyse.trace_quality import clock_line, warnings_of
from warplens.commands.shared.console import force_option, json_option, print_json, stdout
from warplens.commands.shared.invocation import warplens_command
from warplens.commands.shared.number_range import number_range
from warplens.commands.shared.statistics_tables import statistics_table
from warplens.decode import decode
from warplens.errors import WarplensError
from warplens.files import check_writable
from warplens.trace.model import Trace
from warplens.wording import plural

_TOLERANCE = 1e-3


@click.command("demo")
@click.option(
    "-o", "--output", default="warplens-demo", metavar="FOLDER", help="Folder for the trace, the report and the source."
)
@click.option(
    "--source",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Run this version of the kernel: an edited copy of matmul.cu, which NVRTC compiles, or its PTX.",
)
@click.option(
    "--launches",
    type=number_range(int, 1, 100),
    default=1,
    metavar="N",
    help="Record this many launches; `diff` needs at least two to judge a change.",
)
@force_option
@json_option
def command(output: str, source: Path | None, launches: int, force: bool, as_json: bool) -> None:
    """Profile a tiled matrix multiplication, on the GPU if there is one, otherwise in the PTX interpreter.

    Writes a trace, a Perfetto file and an HTML report, and prints statistics and the commands to try next. With
    --source it runs your version of the kernel and checks its result; see docs/tutorial.md.
    """
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise WarplensError(f"{folder}: is a file, not a folder; choose a folder with --output")
    name = source.name if source else samples.SOURCE.name
    targets = [folder / file for file in ("demo.warplens", "demo.pftrace", "demo.html", name)]
    for target in targets:
        if target.exists() and not force:
            check_writable(target)
    where, run = _run(samples.ptx_of(source) if source else "", launches)
    if not run.error <= _TOLERANCE:  # NaN is wrong, too
        raise WarplensError(
            f"the result of {name} is off by {run.error:.3g} (allowed: {_TOLERANCE}); "
            + ("the change is not correct" if source else "please report this")
        )
    trace = decode(run.capture)
    content = (source or samples.SOURCE).read_bytes()
    folder.mkdir(parents=True, exist_ok=True)
    targets[3].write_bytes(content)
    trace.save(targets[0], force=True)
    trace.export(targets[1], force=True)
    trace.export(targets[2], force=True, sources=[folder])
    if as_json:
        files = [str(target) for target in targets]
        print_json({"ran_on": where, "files": files, "spans": len(trace), "stats": trace.stats().to_json()})
        return
    _print(where, trace, targets)


def _run(ptx: str, launches: int) -> tuple[str, samples.SampleRun]:
    device = samples.gpu()
    if device is None:
        where = "no GPU here: running woven PTX in the interpreter on the CPU (simulated clock)"
        return where, samples.simulated(ptx=ptx, launches=launches)
    return (f"running woven PTX on the GPU: {device.device().name}", samples.on_gpu(device, ptx=ptx, launches=launches))


def _print(where: str, trace: Trace, targets: list[Path]) -> None:
    console = stdout()
    info = trace.meta.launches[0]
    console.print(escape(where))
    grid, block = ("×".join(str(size) for size in shape if size > 1) for shape in (info.grid, info.block))
    size = f"{grid} blocks of {block} threads, {plural(len(trace.launches), 'launch')}, {plural(len(trace), 'span')}"
    console.print(f"\n[bold]{info.kernel}[/]: {size}")
    console.print(statistics_table(trace.stats()))
    console.print(f"clock: {escape(clock_line(trace))}")
    for line in warnings_of(trace) or ["no records were lost"]:
        console.print(escape(line))
    console.print("\n[bold]files[/]")
    for target in targets:
        console.print(f"  {escape(str(target))} ({target.stat().st_size:,} bytes)")
    console.print("\n[bold]next[/]")
    program, file = warplens_command(), shlex.quote(str(targets[0]))
    out = shlex.quote(str(targets[0].with_suffix(".json.gz")))
    for line in (
        f"open {targets[2]} in a browser, or {targets[1]} at https://ui.perfetto.dev",
        f"{program} findings {file}",
        f"{program} view {file} --terminal",
        f"{program} export {file} -o {out}",
    ):
        console.print(f"  {escape(line)}", soft_wrap=True)
