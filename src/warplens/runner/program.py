"""Execute a script or module exactly as `python` would: argv, path, __main__, exit code, traceback."""

from __future__ import annotations

import builtins
import io
import os
import pkgutil
import runpy
import signal
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any

from warplens.errors import WarplensError
from warplens.forks import in_forked_children
from warplens.text import printable

_SIGNALS = ("SIGTERM", "SIGHUP")


@dataclass(frozen=True)
class TargetProgram:
    """The program to run: a script, a folder or zip file with a __main__, or a module."""

    target: str
    arguments: tuple[str, ...] = ()
    module: bool = False

    @property
    def name(self) -> str:
        """The name after which output files are called."""
        if self.module:
            return self.target.removesuffix(".__main__").rpartition(".")[2]
        return Path(os.path.abspath(self.target)).stem

    @property
    def command(self) -> list[str]:
        """The command that runs the program without warplens."""
        return [sys.executable, *(["-m"] if self.module else []), self.target, *self.arguments]


@dataclass(frozen=True)
class Outcome:
    """How the program ended: its exit code, and the exception that ended it, if any."""

    code: int = 0
    error: BaseException | None = None

    @property
    def cut_short(self) -> bool:
        """Whether an exception or a signal ended the program early."""
        return self.error is not None and (not isinstance(self.error, SystemExit) or isinstance(self.error, Terminated))


class Terminated(SystemExit):
    """Raised on a signal that ends the program; the program unwinds as for sys.exit, so that the trace is written."""


def execute(program: TargetProgram) -> Outcome:
    """Run the program in this process and return how it ended.

    Its exceptions are printed as Python prints them. Errors of warplens itself, such as an unreadable file of marks,
    are printed as one line without a traceback.
    """
    parent = os.getpid()
    try:
        with _ending_on_signals():
            _run(program)
            join_threads()
    except BaseException as error:
        if os.getpid() != parent:
            # This is a forked child of the program: it ends as under Python, and the parent writes the trace.
            raise
        return _outcome(error)
    if os.getpid() != parent:
        raise SystemExit(0)
    return Outcome()


def _run(program: TargetProgram) -> None:
    sys.argv[:] = [program.target, *program.arguments]
    main = _new_main()
    if program.module:
        _set_path(os.getcwd())
        runpy._run_module_as_main(program.target)  # type: ignore[attr-defined]
    elif holds_main(program.target):
        sys.path[:] = [os.path.abspath(program.target), *sys.path[1:]]
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
    else:
        path = program.target
        _set_path(os.path.dirname(os.path.realpath(path)))
        code = _compile(path)
        full = os.path.abspath(path)
        main.__dict__.update(__file__=full, __loader__=SourceFileLoader("__main__", full))
        exec(code, main.__dict__)


def _new_main() -> ModuleType:
    """Install a fresh __main__ module with the names that this version of Python defines."""
    main, old = ModuleType("__main__"), sys.modules["__main__"]
    main.__dict__["__builtins__"] = builtins
    for name, value in (("__annotations__", {}), ("__cached__", None)):
        if name in vars(old):
            main.__dict__[name] = value
    sys.modules["__main__"] = main
    return main


def _set_path(folder: str) -> None:
    """Make `folder` the first entry of sys.path, unless Python runs in safe-path mode."""
    if getattr(sys.flags, "safe_path", False):
        return
    sys.path[:] = [folder, *sys.path[1:]]


def holds_main(target: str) -> bool:
    """Whether Python would run the __main__ inside this path: a folder or a zip file."""
    return os.path.isdir(target) or (os.path.isfile(target) and zipfile.is_zipfile(target))


def _compile(path: str) -> CodeType:
    with io.open_code(os.path.abspath(path)) as file:
        code: CodeType | None = pkgutil.read_code(file)
    if code is None:
        with io.open_code(os.path.abspath(path)) as file:
            code = compile(file.read(), os.path.abspath(path), "exec", dont_inherit=True)
    return code


def join_threads() -> None:
    """Wait for the program's threads, as Python does at exit; kernels they launch belong to the trace."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """Turn the first SIGTERM or SIGHUP into an exception; a second one kills the process as usual."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    changed = []

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Terminated(128 + number)

    for name in _SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)
            changed.append(number)

    def put_back() -> None:
        for number in changed:
            if signal.getsignal(number) is end:
                signal.signal(number, signal.SIG_DFL)

    stop = in_forked_children(put_back)  # a signal ends them as it does under Python
    try:
        yield
    finally:
        stop()
        put_back()


def _outcome(error: BaseException) -> Outcome:
    if isinstance(error, SystemExit):
        return Outcome(_exit_code(error.code), error)
    if isinstance(error, WarplensError):
        print(printable(f"warplens: {error}"), file=sys.stderr)
        return Outcome(error.exit_code, error)
    error.__traceback__ = own_frames(error.__traceback__)
    sys.excepthook(type(error), error, error.__traceback__)
    return Outcome(130 if isinstance(error, KeyboardInterrupt) else 1, error)


def _exit_code(payload: Any) -> int:
    """Return the exit code of sys.exit(payload); print a text payload, as Python does."""
    if payload is None:
        return 0
    if isinstance(payload, int):
        return payload & 0xFF
    print(payload, file=sys.stderr)
    return 1


def own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the leading frames of warplens."""
    here = os.path.dirname(__file__)
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(here):
        traceback = traceback.tb_next
    return traceback
