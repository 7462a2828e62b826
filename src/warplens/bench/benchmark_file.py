"""Load the benchmarks of a Python file."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path

from warplens.bench.benchmark_decorator import Benchmark
from warplens.errors import UsageError, WarplensError, check_name


def load_benchmarks(path: str) -> list[Benchmark]:
    """Execute a file as a module and return its benchmarks in the order of definition."""
    file = Path(path)
    if not file.is_file():
        raise WarplensError(f"{file}: no such file; check the path")
    spec = importlib.util.spec_from_file_location(f"_warplens_bench_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file}: not a Python file; give a .py file that contains an @wl.benchmark")
    module = importlib.util.module_from_spec(spec)
    # As Python does for a script: modules in its folder can be imported, and pickle and dataclasses find the module.
    sys.path.insert(0, str(file.parent.resolve()))
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        name = str(error.name)
        raise WarplensError(
            f"{file}{_line(error, file)}: needs {name}, which is not installed: pip install {name}"
        ) from None
    except (Exception, SystemExit) as error:
        kind = UsageError if isinstance(error, UsageError) else WarplensError
        what = "" if isinstance(error, WarplensError) else f"{type(error).__name__}: "
        raise kind(f"{file}{_line(error, file)}: {what}{error}") from None
    found = [value for value in vars(module).values() if isinstance(value, Benchmark)]
    unique = list({id(one): one for one in found}.values())
    if not unique:
        raise WarplensError(
            f"{file}: contains no benchmark; decorate a function with @wl.benchmark(x=..., values=[...])"
        )
    return unique


def select_benchmarks(benchmarks: list[Benchmark], only: tuple[str, ...]) -> list[Benchmark]:
    """Return the benchmarks with these names, or all if no names are given."""
    known = [one.name for one in benchmarks]
    for name in only:
        check_name(f"--only {name}: unknown benchmark", name, known)
    return [one for one in benchmarks if not only or one.name in only]


def _line(error: BaseException, file: Path) -> str:
    """Return the line of the file that failed, as `:12`."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f":{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    return f":{lines[-1]}" if lines else ""
