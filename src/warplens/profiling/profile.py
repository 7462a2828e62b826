"""wl.profile: a session whose end makes the trace."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from warplens.calibrate.record_cost import with_estimates
from warplens.decode import decode
from warplens.errors import UsageError, WarplensError
from warplens.files import check_writable
from warplens.formats import FORMATS
from warplens.frontends import registry
from warplens.frontends.graphs import watch_graphs
from warplens.frontends.ranges import watch_ranges
from warplens.launch.block_sampler import sample_launches
from warplens.options import Options
from warplens.profiling.decorator import F, inside
from warplens.profiling.explain import explain_losses, explain_no_kernel
from warplens.profiling.region_check import is_wanted, verifier
from warplens.profiling.torch_recorder import Recorder, TorchResult
from warplens.record.capture import MAX_RANK, Capture, Launch
from warplens.session import Session
from warplens.session.stack import check_free
from warplens.text import printable
from warplens.trace.model import Trace, empty_table


class Profile(Session):
    """A profile: a context manager, and a decorator that profiles each call.

    Nothing is copied or decoded before the block ends. If the block fails, what ran is still collected and written,
    and the block's own error is raised unchanged.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        rank: int | None = None,
        whole_program: bool = False,
        counts_all: bool = False,
        **options: Any,
    ) -> None:
        if callable(path):
            raise WarplensError("write @wl.profile() with brackets: @wl.profile alone decorates nothing")
        self.path = None if path is None else _trace_path(path)
        super().__init__(Options.of(options), whole_program=whole_program, counts_all=counts_all)
        self.rank = _rank() if rank is None else _checked_rank(rank, "rank")
        self._recorder: Recorder | None = None
        self._torch: TorchResult | None = None
        self._trace: Trace | None = None
        self._process = os.getpid()

    @property
    def trace(self) -> Trace:
        """The decoded trace; available once the block has ended."""
        if self._trace is None:
            raise WarplensError("the trace is not there yet: it is made when the `with wl.profile(...)` block ends")
        return self._trace

    @property
    def torch(self) -> TorchResult:
        """With torch=True: PyTorch's operators and kernels, and how well they are aligned; once the block has ended."""
        if self._torch is None:
            raise WarplensError(
                "there is no torch trace: it is made by wl.profile(..., torch=True) when its block ends"
            )
        return self._torch

    def __enter__(self) -> Profile:
        check_free()
        self.reset()
        self._process = os.getpid()
        if self.options.torch and self.enabled:
            self._recorder = Recorder(self.options.torch)
            self._recorder.start()
        try:
            self.resume()
        except BaseException:
            self._stop_torch()
            raise
        return self

    def _start_front_ends(self) -> None:
        super()._start_front_ends()
        # A whole program's kernels are counted even where no automatic marks are asked for.
        if self.enabled and (self.options.changes_any_kernel or self.whole_program):
            self._stops.append(registry.watch(lambda library, error: self.note(library, str(error))))

        if self.enabled:
            self._stops.append(watch_graphs(self))
        if self.enabled and self.options.within is not None:
            self._stops.append(watch_ranges())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.pause()
        if os.getpid() != self._process:
            # What a forked child inherited is its parent's to collect and to write.
            self._recorder = None
        recorder = self._stop_torch()
        if not self.enabled or os.getpid() != self._process:
            self._trace = Trace(empty_table())
            return
        try:
            try:
                self._finish()
            finally:
                if recorder is not None:
                    self._finish_torch(recorder)
        except Exception as failure:
            if error is None:
                raise
            _say(failure)

    def _repr_html_(self) -> str | None:
        """The trace's summary once there is one; before that, notebooks fall back to plain text."""
        return None if self._trace is None else self._trace._repr_html_()

    def __call__(self, function: F) -> F:
        return inside(self, function)

    def _stop_torch(self) -> Recorder | None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.stop()
        return recorder

    def _finish_torch(self, recorder: Recorder) -> None:
        self._torch = recorder.result(self._trace or Trace(empty_table()), self.path)
        if self._torch.problem and self._trace:
            _say(f"not aligned with the torch trace: {self._torch.problem}")

    def _finish(self) -> None:
        launches, problems = self.collect()
        # The estimates need the headers of all blocks.
        launches = sample_launches(with_estimates(launches, self.note), self.options.trace_bytes)
        self._trace = decode(Capture(launches, device=self.device, rank=self.rank))
        self._trace.meta = replace(self._trace.meta, notes={kernel: tuple(said) for kernel, said in self.notes.items()})
        verify = verifier(self.run.codes, launches)
        if is_wanted(self.options.verify):
            self._trace.verifier = verify
        if self.path is not None and len(self._trace):
            self._trace.save(self.path)
        if problems and not launches:
            raise WarplensError("; ".join(problems))
        for text in [*problems, *explain_losses(launches, self._trace)]:
            _say(text)
        if self.user_mistake is not None:
            raise self.user_mistake
        self._refuse_empty_ranges(launches)
        self._refuse_silence(launches, self._trace)

    def _refuse_empty_ranges(self, launches: list[Launch]) -> None:
        """A region by lines in which no kernel has code is a mistake in the lines."""
        self.run.coverage.add((name for launch in launches for name in launch.regions.values()), {})
        missing = self.run.coverage.missing(self.options.marks.ranges) if self.seen else []
        if missing:
            raise UsageError("; ".join(missing))

    def _refuse_silence(self, launches: list[Launch], trace: Trace) -> None:
        """A profile without a record is an error, never an empty timeline."""
        if len(trace) or self.options.dump_ir is not None:
            return
        if not launches and self._gave_way and not self.seen:
            raise WarplensError(
                "no kernel was left to record: the program profiles its kernels itself, with a wl.profile of its own; "
                "run it without warplens run, or take that out"
            )
        if not launches:
            raise WarplensError(explain_no_kernel(self.options, self.seen, self.notes))
        names = ", ".join(sorted({launch.kernel for launch in launches}))
        losses = trace.meta.losses
        if losses.records_written:
            raise WarplensError(
                f"{names}: {losses.records_written:,} records were written but none was kept; raise records_per_warp"
            )
        raise WarplensError(
            f"{names} ran but recorded nothing: no mark was reached by lane 0 of a recorded warp; "
            "check warps=, blocks= and sms=, and that the marked code runs"
        )


def _say(text: object) -> None:
    """Print one line on stderr; a program that closed its stderr goes on without it."""
    try:
        print(printable(f"warplens: {text}"), file=sys.stderr)
    except (OSError, ValueError):
        return


def _rank() -> int:
    """This process's number among those that torchrun and similar launchers start."""
    given = os.environ.get("RANK", "") or "0"
    return _checked_rank(int(given) if given.isdecimal() and len(given) <= len(str(MAX_RANK)) else given, "RANK")


def _checked_rank(given: int | str, source: str) -> int:
    """The rank, which must be a number that the trace's column can hold."""
    if isinstance(given, int) and 0 <= given <= MAX_RANK:
        return given
    shown = given if isinstance(given, int) else repr(given[:40])
    remedy = "set RANK to one, unset it, or give rank= to profile()"
    raise UsageError(f"{source}={shown} is not a number in 0..{MAX_RANK}; {remedy}")


def _trace_path(path: str | os.PathLike[str]) -> Path:
    """Where a profile may write: a trace under the name of another format would be read as that."""
    target = check_writable(path, force=True)
    if target.is_dir():
        raise UsageError(f"{target}: is a folder; name the file to write, such as {target / 'kernel.warplens'}")
    if any(target.name.lower().endswith(suffix) for suffix in FORMATS if suffix != ".parquet"):
        raise UsageError(
            f"{target}: a profile writes a trace, such as {target.stem}.warplens; `warplens export` makes other formats"
        )
    return target.absolute()  # a program may change its working directory before the trace is written


profile = Profile
