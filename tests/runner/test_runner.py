"""What `warplens run` is made of: where its options end, what imports trigger, CUPTI's times, Inductor's kernels."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import warplens as wl
from warplens.analyse.kernel_list import list_kernels
from warplens.auto.rules import DEFAULT
from warplens.errors import UsageError
from warplens.frontends import import_hook, registry
from warplens.runner.kernel_times import KernelTimes
from warplens.runner.run_arguments import split
from warplens.session import stack

USUAL = "--auto=" + ",".join(DEFAULT)


@pytest.mark.parametrize(
    ("words", "ours", "program"),
    [
        ("--auto train.py --steps 3", [USUAL], ["train.py", "--steps", "3"]),
        ("--auto loads,mma train.py --auto", ["--auto=loads,mma"], ["train.py", "--auto"]),
        ("--auto all train.py", ["--auto=all"], ["train.py"]),
        ("--auto --force train.py", [USUAL, "--force"], ["train.py"]),
        ("--auto=waits train.py", ["--auto=waits"], ["train.py"]),
        ("--kernels a.* --force t.py -o x", ["--kernels", "a.*", "--force"], ["t.py", "-o", "x"]),
        ("--auto -m pkg.mod -m x", [USUAL, "-m", "pkg.mod"], ["-m", "x"]),
        ("-mpkg --json", ["-m", "pkg"], ["--json"]),
        ("--force -- -odd.py --auto", ["--force"], ["-odd.py", "--auto"]),
        ("--auto", [USUAL], []),
        ("-m", ["-m"], []),
    ],
)
def test_our_options_end_where_the_program_begins(words: str, ours: list[str], program: list[str]) -> None:
    assert split(words.split(), {"--kernels", "-o"}) == (ours, program)


def test_a_mistyped_rule_is_not_taken_for_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="did you mean 'stores'"):
        split(["--auto", "store", "train.py"], ())
    Path("store").write_text("")
    assert split(["--auto", "store", "train.py"], ()) == ([USUAL], ["store", "train.py"])


def test_what_c_code_prints_does_not_reach_the_json_on_stdout() -> None:
    """As a program of its own: C's buffer and its file descriptor are the process's."""
    code = (
        "import ctypes; from warplens.runner.stdout_redirect import stdout_to_stderr\n"
        "with stdout_to_stderr(True):\n    ctypes.CDLL(None).printf(b'from a kernel'); print('from python')\n"
        "print('{}')"
    )
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=buffered)
    assert done.stdout == "{}\n"
    assert "from a kernel" in done.stderr
    assert "from python" in done.stderr


def test_an_old_triton_is_said_and_not_in_the_programs_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "attached", set())
    monkeypatch.setattr(stack, "front_ends", [])
    importlib.import_module("triton")
    monkeypatch.setattr("triton.__version__", "3.1.0")
    profile = wl.profile(auto=True)
    profile.resume()
    profile.pause()
    assert "triton 3.1 is too old" in profile.notes["triton"][0]
    assert "triton" not in registry.attached


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package whose import is watched, with a module inside that needs the package to be complete."""
    package = tmp_path / "watched_package"
    package.mkdir()
    (package / "__init__.py").write_text("from watched_package import inner\nDONE = True\n")
    (package / "inner.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "watched_package"
    for name in ("watched_package", "watched_package.inner"):
        sys.modules.pop(name, None)


def test_a_callback_comes_once_when_the_module_is_complete(module: str) -> None:
    calls: list[tuple[str, bool]] = []

    def seen(name: str) -> None:
        calls.append((name, hasattr(sys.modules[module], "DONE")))

    before = list(sys.meta_path)
    stop = import_hook.when_imported({module: seen, f"{module}.inner": seen, "no_such_module_at_all": seen})
    imported = importlib.import_module(module)
    importlib.reload(imported)
    assert calls == [(f"{module}.inner", False), (module, True)]
    assert "exec_module" not in vars(imported.__spec__.loader)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module_at_all")
    stop()
    stop()
    assert sys.meta_path == before
    import_hook.when_imported({module: seen})()
    assert calls[2:] == [(module, True)]


class Event:
    def __init__(self, name: str, ns: int, device: str = "CUDA", annotation: bool = False) -> None:
        self._facts = name, ns, SimpleNamespace(name=device), annotation

    def name(self) -> str:
        return self._facts[0]

    def duration_ns(self) -> int:
        return self._facts[1]

    def device_type(self) -> Any:
        return self._facts[2]

    def is_user_annotation(self) -> bool:
        return self._facts[3]


def install_profiler(monkeypatch: pytest.MonkeyPatch, events: list[Event]) -> Any:
    """A torch whose profiler runs one session at a time, as the real one does."""
    running: list[Any] = []

    class Session:
        def __init__(self, **options: Any) -> None:
            self.kineto_results = SimpleNamespace(events=lambda: events)

        def _prepare_trace(self) -> None:
            assert not running, "torch's profiler cannot run twice"
            running.append(self)

        def __enter__(self) -> Session:
            self._prepare_trace()
            return self

        def __exit__(self, *error: object) -> None:
            running.remove(self)

    torch, autograd, profiler = (ModuleType(name) for name in ("torch", "torch.autograd", "torch.autograd.profiler"))
    torch.cuda, torch.autograd = SimpleNamespace(device_count=lambda: 1), autograd
    torch.__spec__ = importlib.machinery.ModuleSpec("torch", None)
    autograd.profiler, profiler.profile = profiler, Session
    for made in (torch, autograd, profiler):
        monkeypatch.setitem(sys.modules, made.__name__, made)
    return Session


def test_kernel_times_come_from_cupti_and_make_way_for_the_programs_own_profiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = [Event("gemm", 5), Event("gemm", 7), Event("Memcpy HtoD", 9), Event("aten::mm", 1, "CPU")]
    session = install_profiler(monkeypatch, [*events, Event("step", 3, annotation=True)])
    activity = KernelTimes()
    activity.start()
    activity.stop()
    assert activity.complete
    assert activity.times == {"gemm": [5, 7]}
    original = session._prepare_trace
    busy = KernelTimes()
    busy.start()
    with session():
        pass
    busy.stop()
    assert busy.times == {"gemm": [5, 7]}
    assert "torch.profiler itself" in busy.problem
    assert session._prepare_trace is original


def test_the_list_says_which_kernels_can_be_marked_and_why_others_cannot() -> None:
    times = {
        "triton_poi_0": [10, 30],
        "void scale<float>(float*, int)": [7],
        "sm90_xmma_gemm_f16": [100],
        "void at::native::fill<4>(int)": [1],
        "mystery": [2],
    }
    seen = {"triton_poi_0": 2, "scale": 1, "untimed": 4}
    rows = {row.kernel: row for row in list_kernels(times, seen, {"mystery": ["loaded as a cubin"]})}
    assert list(rows) == ["sm90_xmma_gemm_f16", "triton_poi_0", "scale", "mystery", rows_last := [*rows][4], "untimed"]
    assert "at::native" in rows_last
    assert (rows["triton_poi_0"].total_ns, rows["triton_poi_0"].mean_ns, rows["triton_poi_0"].p50_ns) == (40, 20, 20)
    assert [row.kernel for row in rows.values() if row.markable] == ["triton_poi_0", "scale", "untimed"]
    assert "library" in rows["sm90_xmma_gemm_f16"].reason
    assert "PyTorch kernel" in rows[rows_last].reason
    assert rows["mystery"].reason == "loaded as a cubin"
    assert rows["untimed"].total_ns is None
