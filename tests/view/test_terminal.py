"""The terminal view, the notebook view and the figures."""

from __future__ import annotations

import builtins
import io
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import warplens
from tests.support.builders import Span, make_trace
from tests.support.synthetic_capture import make_capture
from warplens.commands import main
from warplens.errors import UsageError, WarplensError
from warplens.profiling.notebook_magic import load_ipython_extension
from warplens.profiling.profile import Profile
from warplens.trace.model import Trace, empty_table
from warplens.view import terminal
from warplens.view.figures import plot
from warplens.view.notebook import trace_html
from warplens.view.palette import BASE, colours

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def trace() -> Trace:
    spans = [Span("load", 0, 40, block=b, warp=w) for b in range(3) for w in range(2)]
    spans += [Span("mma", 40, 60, block=b, warp=w) for b in range(3) for w in range(2)]
    return make_trace(spans)


def rendered(thing: Any, width: int = 80) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, no_color=True).print(thing)
    return out.getvalue().splitlines()


def test_each_cell_is_the_letter_of_what_the_row_did_most(trace: Trace) -> None:
    lines = rendered(terminal.timeline(trace, width=55))
    assert lines[1] == "SM 0 " + "l" * 20 + "m" * 30
    assert len(lines[1]) == 55
    assert any("l  load" in line and "m  mma" in line for line in lines)
    assert "1 more rows" in rendered(terminal.timeline(trace, width=55, most=2))[3]
    warps = rendered(terminal.timeline(trace, by="warp", width=60))
    assert [line[:14] for line in warps[1:7]] == [f"block {b} warp {w}" for b in range(3) for w in range(2)]


def test_the_ruler_tells_its_marks_apart_late_in_a_trace() -> None:
    late = make_trace([Span("load", 517_000, 3000), Span("mma", 520_000, 3000)])
    marks = [mark.strip() for mark in rendered(terminal.timeline(late, width=120), 120)[0].split("│")[1:]]
    assert len(set(marks)) == len(marks)
    assert marks[0] == "517 µs"
    assert marks[1].startswith("+")
    early = rendered(terminal.timeline(make_trace([Span("load", 0, 6000)]), width=120), 120)[0]
    assert "+" not in early


def test_letters_come_from_names_and_are_never_shared() -> None:
    assert terminal.letters(["load", "log", "lo", "Load"]) == ["l", "o", "L", "a"]
    many = terminal.letters([f"r{i}" for i in range(60)])
    assert len(set(many)) == 60


def test_histograms_show_every_span_and_the_percentiles(trace: Trace) -> None:
    lines = rendered(terminal.spreads(trace), 120)
    mma = next(line for line in lines if line.startswith("mma"))
    assert "█" in mma
    assert mma.split()[1:3] == ["6", "120"]
    assert mma.split()[-3:] == ["120", "120", "120"]


def test_the_command_filters_and_says_what_is_wrong(
    trace: Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = str(trace.save(tmp_path / "t.warplens"))
    assert main(["view", saved, "--terminal", "--width", "70"]) == 0
    out = capsys.readouterr().out
    assert "SM 2 " in out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 70
    assert "\x1b[" not in out, "no colour codes in a pipe"
    assert main(["view", saved, "--terminal", "--block", "1", "--region", "mma"]) == 0
    out = capsys.readouterr().out
    assert "block 1 warp 1" in out
    assert "load" not in out
    assert main(["view", saved, "--terminal", "--sm", "77"]) == 1
    assert "nothing was recorded on SM 77; the trace has SM 0-2 and block 0-2" in capsys.readouterr().err
    assert main(["view", saved, "--terminal", "--region", "mna"]) == 2
    assert "did you mean 'mma'" in capsys.readouterr().err
    assert main(["view", saved, "--sm", "1"]) == 2
    assert main(["view", saved, "--rows", "3", "--no-browser", "--timeout", "0.1"]) == 2


def test_notebooks_show_a_summary_without_a_script(trace: Trace) -> None:
    html = trace._repr_html_()
    assert "<svg" in html
    assert "load" in html
    assert "12 spans" in html
    assert "<script" not in html
    hostile = trace_html(make_trace([Span(HOSTILE, 0, 5, kernel=HOSTILE)]))
    assert "<img" not in hostile
    assert "&lt;img" in hostile
    assert "0 spans" in trace_html(Trace(empty_table()))
    assert Profile()._repr_html_() is None


class Shell:
    """What of IPython the magic uses."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {}
        self.magic: Any = None

    def register_magic_function(self, function: Any, kind: str, name: str) -> None:
        assert (kind, name) == ("cell", "warplens")
        self.magic = function

    def run_cell(self, cell: str) -> Any:
        exec(cell, self.user_ns)
        return type("Outcome", (), {"success": True})


def test_the_cell_magic_profiles_the_cell_and_leaves_prof_and_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell()
    warplens.load_ipython_extension(shell)
    cell = "from warplens.session import active\ninside = active()\ninside.add(launch)"
    shell.user_ns["launch"] = type("Pending", (), {"collect": lambda self: make_capture(40, 2, 2).launches[0]})()
    shown = shell.magic(f"-o {tmp_path / 'cell.warplens'} --name run", cell)
    assert shell.user_ns["inside"] is shell.user_ns["run"]
    assert shown is shell.user_ns["trace"] is shell.user_ns["run"].trace
    assert (tmp_path / "cell.warplens").exists()
    assert len(shown) > 30
    with pytest.raises(UsageError, match="%%warplens"):
        shell.magic("--nonsense", "")
    assert shell.magic("", "pass") is None
    assert "no kernel was profiled" in capsys.readouterr().err


def test_the_extension_loads_into_a_real_ipython(trace: Trace) -> None:
    pytest.importorskip("IPython")
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    load_ipython_extension(shell)
    assert "warplens" in shell.magics_manager.magics["cell"]
    assert "<svg" in shell.display_formatter.format(trace)[0]["text/html"]


def test_figures_are_written_as_pictures(trace: Trace, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    png, svg = trace.export(tmp_path / "t.png"), trace.export(tmp_path / "t.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in svg.read_bytes()[:500]
    figure = plot(trace, "timeline", by="warp")
    bars = {c.get_label(): len(c.get_paths()) for c in figure.axes[0].collections}
    assert bars == {"load": 6, "mma": 6}
    assert [text.get_text() for text in plot(trace, "stats").axes[0].get_yticklabels()] == ["mma", "load"]
    with pytest.raises(UsageError, match="did you mean 'stats'"):
        plot(trace, "stat")


@pytest.mark.parametrize("name", [r"$\frac{$", "_hidden", "a$b$c", "\x9b2J"])
def test_a_name_in_a_figure_is_no_formula_and_not_left_out(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    odd = make_trace([Span(name, 0, 10, kernel=name), Span("b", 2, 3, kernel=name)])
    odd.export(tmp_path / "o.svg")
    legend = plot(odd, "timeline").axes[0].get_legend()
    assert len(legend.get_texts()) == 2


def test_without_matplotlib_the_exact_pip_line_is_given(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **more)

    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(WarplensError, match=r"pip install 'warplens\[viewer\]'"):
        trace.plot()


def test_region_colours_are_distinct_for_the_first_two_dozen() -> None:
    assert colours(8) == list(BASE)
    assert len(set(colours(24))) == 24
