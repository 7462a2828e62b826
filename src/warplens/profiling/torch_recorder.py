"""torch.profiler running beside a profile, and what the two together found."""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from warplens.analyse.torch.alignment import Aligned, align
from warplens.analyse.torch.kineto import TorchTrace, read_torch
from warplens.analyse.torch.operators import Operator, TorchKernel, TorchSummary, summarise
from warplens.errors import WarplensError
from warplens.files import atomic_write
from warplens.frontends.import_hook import when_imported
from warplens.frontends.wrap import wrap
from warplens.trace.model import Trace, empty_table

_OWN = (
    "the program runs torch.profiler itself, and only one can run: what follows is not in this torch trace; export the "
    "program's own and merge it with `warplens export TRACE --torch FILE -o merged.pftrace`"
)


@dataclass(frozen=True)
class TorchResult:
    """What torch.profiler saw of a profile. `problem` says why the launches could not be aligned with it."""

    torch: TorchTrace
    summary: TorchSummary
    aligned: Aligned | None = None
    problem: str = ""
    files: tuple[Path, ...] = ()

    @property
    def operators(self) -> list[Operator]:
        """The operator table: calls, time on CPU and GPU, memory; the most time on the GPU first."""
        return list(self.summary.operators)

    @property
    def kernels(self) -> list[TorchKernel]:
        """Every kernel, copy and fill that ran."""
        return list(self.summary.kernels)

    @property
    def error_ns(self) -> float | None:
        """How far regions may be off among the torch slices."""
        return None if self.aligned is None else self.aligned.error_ns

    def to_json(self) -> dict[str, Any]:
        return {
            **self.summary.to_json(),
            "alignment": [] if self.aligned is None else [one.to_json() for one in self.aligned.alignments],
            "problem": self.problem or None,
            "files": [str(file) for file in self.files],
        }


class Recorder:
    """One session of torch.profiler, from the import of torch (or now, if it is there) to `stop`."""

    def __init__(self, options: Mapping[str, Any] | bool) -> None:
        given = options if isinstance(options, Mapping) else {}
        self._options = {"record_shapes": True, "profile_memory": True, **given}
        self._session: Any = None
        self._raw: bytes | None = None
        self._problem = "torch=True, but the program never imported torch: there is nothing to show of it"
        self._undo: list[Callable[[], None]] = []

    def start(self) -> None:
        require_torch()
        self._undo.append(when_imported({"torch": lambda _: self._begin()}))

    def _begin(self) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile

        if torch.autograd._profiler_enabled():
            raise WarplensError(
                "torch.profiler is already running here, and only one can: leave torch=True out and merge its export "
                "with `warplens export TRACE --torch FILE -o merged.pftrace`"
            )
        activities = [ProfilerActivity.CPU]
        if torch.cuda.device_count():
            activities.append(ProfilerActivity.CUDA)
        try:
            self._session = profile(activities=activities, **self._options)
        except TypeError as error:
            raise WarplensError(f"torch={self._options!r}: torch.profiler.profile refuses them ({error})") from None
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning: Profiler clears events")
            self._session.start()
        self._make_way()

    def _make_way(self) -> None:
        """End our session when the program starts one: torch would end ours without saying so."""
        from torch.autograd.profiler import profile

        def prepare(original: Callable[[Any], Any], session: Any) -> Any:
            if self._session is not None and session is not self._session.profiler:
                print(f"warplens: {_OWN}", file=sys.stderr)
                self._end()
            return original(session)

        self._undo.append(wrap(profile, "_prepare_trace", prepare))

    def stop(self) -> None:
        while self._undo:
            self._undo.pop()()
        try:
            self._end()
        except RuntimeError as error:
            self._problem = f"torch.profiler failed: {str(error).partition(chr(10))[0]}"

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        import torch

        if torch.cuda.is_initialized():
            with suppress(RuntimeError):  # a kernel has failed, and the block's own error goes on
                torch.cuda.synchronize()
        session.stop()
        with tempfile.TemporaryDirectory(prefix="warplens-") as folder:
            file = Path(folder) / "torch.json"
            session.export_chrome_trace(str(file))
            self._raw = file.read_bytes()

    def result(self, trace: Trace, path: Path | None) -> TorchResult:
        """What both saw, on one clock; with the path of the trace, also as files beside it."""
        if self._raw is None:
            raise WarplensError(self._problem)
        with tempfile.TemporaryDirectory(prefix="warplens-") as folder:
            source = torch_path(path or Path(folder) / "torch")
            with atomic_write(source) as out:
                out.write(self._raw)
            seen = read_torch(source)
        aligned, problem = None, ""
        try:
            aligned = align(trace, seen)
        except WarplensError as error:
            problem = str(error)
        files: tuple[Path, ...] = ()
        if path is not None:
            from warplens.export.merged import write_merged

            files = merged_path(path), torch_path(path)
            write_merged(aligned or Aligned(Trace(empty_table()), seen, ()), files[0])
        recorded = list(aligned.kernels.values()) if aligned is not None else []
        return TorchResult(seen, summarise(seen, recorded), aligned, problem, files)


def require_torch() -> None:
    """Say what is missing before anything runs."""
    if find_spec("torch") is None:
        raise WarplensError("PyTorch's profiler needs torch, which is not installed: pip install torch")


def merged_path(trace: Path) -> Path:
    """Where the merged file goes, beside the trace."""
    return trace.with_suffix(".pftrace")


def torch_path(trace: Path) -> Path:
    """Where torch.profiler's own export goes."""
    return trace.with_suffix(".torch.json")
