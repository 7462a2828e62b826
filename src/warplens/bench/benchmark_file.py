"""Find the benchmarks in a Python file."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path

from warplens.bench.benchmark_decorator import Benchmark
from warplens.errors import UsageError, WarplensError, did_you_mean


def load_benchmarks(path: str) -> list[Benchmark]:
    """Run a file as a module and return its benchmarks, in the order they were written."""
    file = Path(path)
    if not file.is_file():
        raise WarplensError(f"{file}: there is no such file")
    spec = importlib.util.spec_from_file_location(f"_warplens_bench_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file}: not a Python file; a benchmark is a .py file with @wl.benchmark in it")
    module = importlib.util.module_from_spec(spec)
    # As when Python runs a file: its neighbours can be imported, and pickling or dataclasses find the module.
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
        raise WarplensError(f"{file}: holds no benchmark; put @wl.benchmark(x=..., values=[...]) above a function")
    return unique


def choose(benchmarks: list[Benchmark], only: tuple[str, ...]) -> list[Benchmark]:
    """Those named, or all."""
    known = [one.name for one in benchmarks]
    for name in only:
        if name not in known:
            raise UsageError(f"--only {name}: no such benchmark{did_you_mean(name, known)}")
    return [one for one in benchmarks if not only or one.name in only]


def _line(error: BaseException, file: Path) -> str:
    """`:12`, the line of the file that failed."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f":{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    return f":{lines[-1]}" if lines else ""
