"""The names that users import: what they are, what they take, and what `help` says about them."""

from __future__ import annotations

import inspect
import pkgutil
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import warplens as wl
from tests.support.builders import Span, make_trace
from warplens.errors import UsageError, WarplensError
from warplens.options import Options

PUBLIC = [wl.profile, wl.load, wl.diff, wl.roofline, wl.benchmark, wl.step]
METHODS = [value for name, value in vars(wl.Trace).items() if inspect.isfunction(value) and not name.startswith("_")]


def test_dir_lists_the_public_names_only() -> None:
    assert dir(wl) == sorted(wl.__all__)
    assert not {"annotations", "import_module", "TYPE_CHECKING", "Any"} & set(dir(wl))
    rooms = {module.name for module in pkgutil.iter_modules(wl.__path__)}
    assert not rooms & set(dir(wl))
    for name in wl.__all__:
        assert getattr(wl, name) is not None


def test_profile_takes_every_option_with_its_default_and_type() -> None:
    signature = inspect.signature(wl.profile)
    for field in fields(Options):
        assert signature.parameters[field.name].default == field.default, field.name
    assert set(signature.parameters) == {"path", "rank", "unknown", *(field.name for field in fields(Options))}
    hints = get_type_hints(wl.profile)
    untyped = [name for name in signature.parameters if hints[name] is Any]
    assert not untyped


def test_help_of_profile_explains_every_option() -> None:
    text = inspect.getdoc(wl.profile) or ""
    explained = {
        name.strip(",") for line in text.splitlines() if (words := line.split("  ", 1)) for name in words[0].split()
    }
    missing = [field.name for field in fields(Options) if field.name not in explained]
    assert not missing


@pytest.mark.parametrize("function", [*PUBLIC, *METHODS], ids=lambda function: function.__qualname__)
def test_signatures_are_typed(function: Any) -> None:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        assert parameter.annotation is not parameter.empty, parameter
        if parameter.kind is parameter.VAR_KEYWORD:
            assert parameter.annotation != "Any", parameter
    assert inspect.getdoc(function)


def test_an_unknown_option_names_its_neighbour() -> None:
    with pytest.raises(UsageError, match="no option 'kernel'.*did you mean 'kernels'"):
        wl.profile(kernel="attn")  # type: ignore[arg-type]


def test_profile_without_brackets_is_refused() -> None:
    with pytest.raises(WarplensError, match="with brackets"):
        wl.profile(lambda: None)  # type: ignore[arg-type]


def test_save_export_and_report_do_not_overwrite(tmp_path: Path) -> None:
    trace = make_trace([Span("load", 0, 10), Span("dot", 10, 20)])
    for name, write in [("t.warplens", trace.save), ("t.json", trace.export), ("t.html", trace.report)]:
        path = tmp_path / name
        path.write_text("precious")
        with pytest.raises(WarplensError, match="already exists"):
            write(path)
        assert path.read_text() == "precious"
        assert write(path, force=True) == path
        assert path.read_bytes() != b"precious"


def test_report_writes_pages_only(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.html"):
        make_trace([Span("load", 0, 10)]).report(tmp_path / "t.json")


def test_values_and_instants_are_rows_of_their_kind() -> None:
    trace = make_trace(
        [Span("load", 0, 10), Span("tiles", 3, 0, kind="value", value=7.5), Span("turn", 4, 0, kind="instant")]
    )
    assert trace.values().to_pylist()[0]["value"] == 7.5
    assert trace.values("tiles").num_rows == 1
    assert [row["start_ns"] for row in trace.instants().to_pylist()] == [4]
    with pytest.raises(UsageError, match="no region named"):
        trace.values("tile")
    assert make_trace([Span("load", 0, 10)]).instants().num_rows == 0


def test_launches_and_repr_tell_what_is_there() -> None:
    trace = make_trace([Span("load", 0, 10)])
    assert [launch.kernel for launch in trace.launches] == trace.kernels
    assert repr(trace) == "<warplens.Trace 1 span, 1 launch of kernel>"
