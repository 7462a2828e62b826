"""`warplens view`: open a trace in the Perfetto UI, draw it in the terminal, or show a program that runs."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import webbrowser
from pathlib import Path
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from warplens.analyse.executions import NO_TIMELINE
from warplens.analyse.sample_share import sample_line
from warplens.analyse.trace_quality import rank_line, warnings_of
from warplens.commands.shared.console import stderr, stdout, working
from warplens.commands.shared.number_range import number_range
from warplens.commands.shared.rank_options import ranks_option, read_ranks
from warplens.errors import UsageError, WarplensError
from warplens.trace.model import Trace
from warplens.wording import number_ranges


@click.command("view")
@click.argument("trace", required=False)
@click.option("--terminal", is_flag=True, help="Draw a timeline and histograms in the terminal instead.")
@click.option(
    "--live",
    is_flag=True,
    help="Show a running program that was started with `warplens run --live`; TRACE is the file that it will write, or "
    "its folder (by default the current one). For a job, show all ranks on this host.",
)
@click.option(
    "--width",
    type=number_range(int, 40, 1000),
    metavar="N",
    help="With --terminal: columns to use, 40 to 1000.  [default: the width of the terminal]",
)
@click.option(
    "--rows", type=number_range(int, 1), default=48, metavar="N", help="With --terminal: maximum number of rows."
)
@click.option(
    "--region", "regions", multiple=True, metavar="NAME", help="With --terminal: show only this region (repeatable)."
)
@click.option(
    "--sm", type=number_range(int, 0), metavar="N", help="With --terminal: show only this SM, one row per warp."
)
@click.option(
    "--block", type=number_range(int, 0), metavar="N", help="With --terminal: show only this block, one row per warp."
)
@click.option(
    "--launch",
    metavar="N|all",
    help="With --terminal: draw this launch.  [default: the longest; all of several ranks]",
)
@ranks_option
@click.option("--browser/--no-browser", default=True, help="Open a browser, or only print the address.")
@click.option(
    "--timeout",
    type=number_range(float, 0),
    default=600,
    metavar="SECONDS",
    help="How long to wait for the browser to fetch the trace.",
)
def command(
    trace: str | None,
    terminal: bool,
    live: bool,
    width: int | None,
    rows: int,
    regions: tuple[str, ...],
    sm: int | None,
    block: int | None,
    launch: str | None,
    ranks: str | None,
    browser: bool,
    timeout: float,
) -> None:
    """Open TRACE in the Perfetto UI, or draw it in the terminal with --terminal; with --live, show a running program.

    The Perfetto UI fetches the trace from this machine, through 127.0.0.1:9001. TRACE may also be a .pftrace file, such
    as the merged one of `warplens run --torch`.
    """
    chosen = regions or any(one is not None for one in (sm, block, launch))
    if live:
        if chosen or ranks is not None:
            raise UsageError("--region, --sm, --block, --launch and --ranks are not supported with --live")
        _show_live(Path(trace or "."), terminal, width, browser)
        return
    if trace is None:
        raise UsageError("name the TRACE to show, or use --live for a program that runs now")
    if terminal:
        _in_terminal(read_ranks(trace, ranks), width, rows, regions, sm, block, launch)
        return
    rows_given = click.get_current_context().get_parameter_source("rows") is not ParameterSource.DEFAULT
    if chosen or width is not None or rows_given:
        raise UsageError(
            "--region, --sm, --block, --launch, --width and --rows need --terminal; use the filters of the Perfetto UI"
        )
    _in_perfetto(trace, ranks, browser, timeout)


def _one_launch(trace: Trace, wanted: str | None) -> tuple[Trace, str]:
    """The launch to draw, and a line that says so: launches are short, and the time between them is long."""
    infos = trace.meta.launches
    if wanted == "all" or (wanted is None and (len(infos) < 2 or len({info.rank for info in infos}) > 1)):
        return trace, ""
    known = {str(info.launch): info for info in infos}
    longest = max(infos, key=lambda info: info.end_ns - info.begin_ns)
    drawn = longest if wanted is None else known.get(wanted)
    if drawn is None:
        have = number_ranges(info.launch for info in infos)
        raise UsageError(f"--launch {wanted}: expected `all` or the number of a launch; the trace has {have}")
    which = "the longest" if drawn is longest else "one"
    other = "--launch N draws another, --launch all draws all"
    said = f"launch {drawn.launch} ({drawn.kernel}), {which} of {len(infos):,}; {other}"
    return trace.select(launch=drawn.launch), said


def _in_terminal(
    trace: Trace,
    width: int | None,
    rows: int,
    regions: tuple[str, ...],
    sm: int | None,
    block: int | None,
    launch: str | None,
) -> None:
    from warplens.view import terminal

    if not len(trace):
        raise WarplensError("the trace holds no spans; there is nothing to draw")
    if trace.aggregated:
        raise UsageError(f"{NO_TIMELINE}; `warplens stats` and `warplens report` show the statistics")
    part = trace.select(region=list(regions) or None, sm=sm, block=block)
    if not len(part):
        where = " and ".join(f"{name} {value}" for name, value in (("SM", sm), ("block", block)) if value is not None)
        there = trace.select(region=list(regions) or None)
        have = " and ".join(
            f"{word} {number_ranges(there.numpy(name))}" for name, word in (("sm", "SM"), ("block", "block"))
        )
        raise WarplensError(f"nothing was recorded on {where or 'any warp'}; the trace has {have}")
    console = stdout()
    columns = width or (min(console.width, 200) if console.is_terminal else shutil.get_terminal_size((160, 48)).columns)
    console.width = columns
    by = "sm" if sm is None and block is None else "warp"
    drawn, note = _one_launch(part, launch)
    with working("drawing"):
        shown = terminal.timeline(drawn, by=by, width=columns, most=rows), terminal.spreads(part)
    if note:
        console.print(note, style="dim", markup=False)
    console.print(shown[0])
    console.print()
    console.print(shown[1])
    for line in filter(None, [rank_line(trace), sample_line(trace.meta.launches), *warnings_of(trace)]):
        console.print(line, style="yellow", markup=False)


def _show_live(where: Path, terminal: bool, width: int | None, browser: bool) -> None:
    from warplens.view.live_address import find_address, find_job
    from warplens.view.live_terminal import follow

    job = find_job(where)
    if job is not None:
        _show_job(job, terminal, width, browser)
        return
    address = find_address(where)
    if terminal:
        follow(address.url, stdout(), width)
        return
    _open(address.url, urlsplit(address.url).port or 0, browser)


def _show_job(folder: Path, terminal: bool, width: int | None, browser: bool) -> None:
    """Show all ranks of a job on this host until it ends or Ctrl-C; the page is served by this process."""
    from warplens.view.live_job_feed import JobFeed
    from warplens.view.live_job_page import JobSite
    from warplens.view.live_job_terminal import follow_job
    from warplens.view.live_server import LiveServer

    feed = JobFeed(folder)
    feed.start()
    try:
        if terminal:
            follow_job(feed, stdout(), width)
            return
        server = LiveServer(JobSite(feed))
        server.start()
        try:
            _open(server.url, server.port, browser)
            stderr().print("the page is there until the job ends; press Ctrl-C to stop", markup=False)
            state = feed.wait(0)
            while not state.ended:
                state = feed.wait(state.number)
            stderr().print("the job has ended", markup=False)
        except KeyboardInterrupt:
            pass  # the job continues
        finally:
            server.stop()
    finally:
        feed.stop()


def _open(url: str, port: int, browser: bool) -> None:
    """Open an address of this machine in a browser, or tell how to open it from another machine."""
    from warplens.view.serve import tunnel_command

    console = stderr()
    remote = os.environ.get("SSH_CONNECTION", "")
    if remote:
        console.print("this is a remote machine; on your local machine, run", markup=False)
        console.print(f"  {tunnel_command(remote, port)}", soft_wrap=True, markup=False)
        console.print("and open", markup=False)
    else:
        console.print("open", markup=False)
    console.print(f"  {url}", soft_wrap=True, markup=False)
    if browser and not remote:
        webbrowser.open(url)


def _in_perfetto(trace: str, ranks: str | None, browser: bool, timeout: float) -> None:
    from warplens.export import export
    from warplens.view.serve import PerfettoServer

    console = stderr()
    made = Path(trace).suffix != ".pftrace"
    if not made and not Path(trace).is_file():
        raise WarplensError(f"{trace}: no such file; check the path")
    with tempfile.TemporaryDirectory(prefix="warplens-") as folder:
        file = Path(folder) / f"{Path(trace).stem}.pftrace" if made else Path(trace)
        try:
            server = PerfettoServer(file)
        except WarplensError as error:
            raise WarplensError(str(error).replace("TRACE", trace)) from None
        with server:
            if made:
                loaded = read_ranks(trace, ranks)
                with working(f"writing {file.name}"):
                    export(loaded, file)
            _open(server.ui_url, server.port, browser)
            console.print("waiting for the Perfetto UI to fetch the trace; press Ctrl-C to stop", markup=False)
            if not server.wait(timeout):
                instead = (
                    f"try `warplens report {shlex.quote(trace)}`, which needs no server"
                    if made
                    else "open the file at https://ui.perfetto.dev instead"
                )
                raise WarplensError(f"no browser fetched the trace within {timeout:g} s; {instead}")
            console.print("the browser has fetched the trace", markup=False)
