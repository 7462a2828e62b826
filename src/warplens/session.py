"""profile(): owns a run from the first mark to the trace."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from warplens.auto.rules import Coverage
from warplens.errors import UsageError, WarplensError
from warplens.files import check_writable
from warplens.frontends import import_hook
from warplens.options import Options
from warplens.profiling.decorator import F, inside
from warplens.record.capture import HOST_NS, Capture, Device, Launch
from warplens.trace.model import Trace, empty_table

if TYPE_CHECKING:
    from warplens.profiling.torch_recorder import Recorder, TorchResult


class PendingLaunch(Protocol):
    """A launch whose records may still be on the device. `collect` waits for it and brings them home."""

    def collect(self) -> Launch: ...


class Profile:
    """A profile session: a context manager, and a decorator that profiles each call.

    Front ends call `add` for each launch; nothing is copied or decoded before the block ends. If the block fails,
    what ran is still collected and written, and the block's own error goes on unchanged.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, rank: int | None = None, **options: Any) -> None:
        if callable(path):
            raise WarplensError("write @wl.profile() with brackets: @wl.profile alone decorates nothing")
        self.path = None if path is None else _trace_path(path)
        self.options = Options.of(options)
        self.rank = _rank() if rank is None else rank
        self.device = Device()
        self._recorder: Recorder | None = None
        self._torch: TorchResult | None = None
        self._trace: Trace | None = None
        self._opened: list[Callable[[], None]] = []
        self._counting = threading.Lock()
        self._process = os.getpid()
        self.gives_way = False
        """Whether a profile that starts inside this one takes its place until it ends, as in `warplens run`."""
        self._waiting: Profile | None = None
        self._forget()

    def _forget(self) -> None:
        """Begin with no launch counted: a profile may be entered again, as a decorated function does it, and what an
        interrupt kept from being collected is not the next block's."""
        self._pending: list[PendingLaunch] = []
        self._announced: dict[int, int] = {}
        self.kept: dict[str, Any] = {}
        """What front ends keep until the profile is entered again."""
        self.amend: list[Callable[[Launch], Launch]] = []
        """What front ends have to add to launches when all of them have ended."""
        self._gave_way = False
        self._launches: dict[str, int] = {}
        self.notes: dict[str, list[str]] = {}
        self.seen: dict[str, int] = {}
        self.coverage = Coverage()

    @property
    def enabled(self) -> bool:
        """False when WARPLENS=0 switches everything off."""
        return os.environ.get("WARPLENS", "") != "0"

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

    def wants(self, kernel: str) -> bool:
        """Whether the next launch of `kernel` is one to record; called once per launch, since every= counts them."""
        if not self.options.wants_kernel(kernel):
            return False
        with self._counting:
            number = self._launches.get(kernel, 0)
            self._launches[kernel] = number + 1
        taken, left = divmod(number, self.options.every)
        return left == 0 and (self.options.launches is None or taken < self.options.launches)

    def finished(self, kernel: str) -> bool:
        """Whether as many launches of `kernel` were recorded as are to be."""
        most = self.options.launches
        return most is not None and self._launches.get(kernel, 0) > (most - 1) * self.options.every

    def add(self, pending: PendingLaunch) -> None:
        """Called by a front end for each launch that it is about to make."""
        self._pending.append(pending)
        self._announced[id(pending)] = time.time_ns()

    def saw(self, kernel: str) -> None:
        """Called by a front end for each launch that passes it, recorded or not: what ran is told from this."""
        with self._counting:
            self.seen[kernel] = self.seen.get(kernel, 0) + 1

    def note(self, kernel: str, text: str) -> None:
        """Say once what the user must know of a kernel, such as why it runs unmarked; the trace keeps it."""
        said = self.notes.setdefault(kernel, [])
        if text not in said:
            said.append(text)
            print(f"warplens: {kernel}: {text}", file=sys.stderr)

    def join(self, hook: Callable[[Profile], Callable[[], None] | None]) -> None:
        """Let a front end that was imported inside the block take part in the rest of it."""
        close = hook(self)
        if close is not None:
            self._opened.append(close)

    def __enter__(self) -> Profile:
        _refuse_second(active())
        self._forget()
        self._process = os.getpid()
        if self.options.torch and self.enabled:
            from warplens.profiling.torch_recorder import Recorder

            self._recorder = Recorder(self.options.torch)
            self._recorder.start()
        try:
            self.resume()
        except BaseException:
            self._stop_torch()
            raise
        return self

    def resume(self) -> None:
        """Record the launches that follow; `__enter__` does it first, and it undoes `pause`."""
        running = active()
        _refuse_second(running)
        if running is not None:
            running.pause()
            running._gave_way = True
            self._waiting = running
        _stack.append(self)
        self._opened = []
        try:
            for hook in list(hooks) if self.enabled else ():
                self.join(hook)
            if self.enabled and self.options.hands_on:
                self._opened.append(import_hook.watch(lambda library, error: self.note(library, str(error))))
        except BaseException:
            self.pause()
            raise

    def pause(self) -> None:
        """Leave the launches that follow alone, until `resume` or the block's end; what ran stays in the profile."""
        if self in _stack:
            _stack.remove(self)
        while self._opened:
            self._opened.pop()()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.resume()

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
        except WarplensError as failure:
            if error is None:
                raise
            print(f"warplens: {failure}", file=sys.stderr)

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
            print(f"warplens: not aligned with the torch trace: {self._torch.problem}", file=sys.stderr)

    def collect(self) -> tuple[list[Launch], list[str]]:
        """Bring every launch home; what could not be brought, in words."""
        launches, problems = [], []
        for pending in self._pending:
            try:
                launch = pending.collect()
                launches.append(replace(launch, extra={**launch.extra, HOST_NS: self._announced[id(pending)]}))
            except WarplensError as problem:
                problems.append(str(problem))
        for amend in self.amend:
            launches = [amend(launch) for launch in launches]
        self._pending.clear()
        self._announced.clear()
        return launches, problems

    def _finish(self) -> None:
        from warplens.decode import decode

        launches, problems = self.collect()
        self._trace = decode(Capture(launches, device=self.device, rank=self.rank))
        self._trace.meta = replace(self._trace.meta, notes={kernel: tuple(said) for kernel, said in self.notes.items()})
        if self.path is not None and len(self._trace):
            self._trace.save(self.path)
        if problems and not launches:
            raise WarplensError("; ".join(problems))
        for text in [*problems, *_losses(launches, self._trace)]:
            print(f"warplens: {text}", file=sys.stderr)
        self._refuse_empty_ranges(launches)
        self._refuse_silence(launches, self._trace)

    def _refuse_empty_ranges(self, launches: list[Launch]) -> None:
        """A region by lines in which no kernel has code is a mistake in the lines."""
        self.coverage.add((name for launch in launches for name in launch.regions.values()), {})
        missing = self.coverage.missing(self.options.marks.ranges) if self.seen else []
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
            raise WarplensError(_why_nothing(self.options, self.seen, self.notes))
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


def _refuse_second(running: Profile | None) -> None:
    if running is not None and not running.gives_way:
        raise WarplensError("a profile is already running; end it before starting another")


def _rank() -> int:
    """This process's number among those that torchrun and its like start."""
    given = os.environ.get("RANK", "") or "0"
    try:
        return int(given)
    except ValueError:
        raise UsageError(
            f"RANK={given!r} in the environment is no number; unset it, or give rank= to profile()"
        ) from None


def _trace_path(path: str | os.PathLike[str]) -> Path:
    """Where a profile may write: a trace under the name of another format would be read as that."""
    from warplens.formats import FORMATS

    target = check_writable(path, force=True)
    if target.is_dir():
        raise UsageError(f"{target}: is a folder; name the file to write, such as {target / 'kernel.warplens'}")
    if any(target.name.lower().endswith(suffix) for suffix in FORMATS if suffix != ".parquet"):
        raise UsageError(
            f"{target}: a profile writes a trace, such as {target.stem}.warplens; `warplens export` makes other formats"
        )
    return target


def _losses(launches: list[Launch], trace: Trace) -> list[str]:
    """What was lost, and the size that keeps it."""
    losses = trace.meta.losses
    if not losses.records_lost:
        return []
    ringed = any(launch.extra.get("shared_bytes") and launch.full == "ring" for launch in launches)
    remedy = "buffer='global' or full='stop'" if ringed else f"records_per_warp={losses.most_written}"
    return [
        f"{losses.records_lost:,} of {losses.records_written:,} records were lost, their tracks were full; "
        f"{remedy} keeps all of them"
    ]


def _why_nothing(options: Options, seen: Mapping[str, int], notes: Mapping[str, Sequence[str]]) -> str:
    """What to say when no kernel was recorded: what ran, and what would have been."""
    if not seen:
        return (
            "no kernel was profiled: none that warplens can record was launched; check that the program gets to its "
            "kernels, and that they have marks or auto= (--auto) is given; `warplens run --list-kernels` lists them"
        )
    ran = _listed(seen)
    if options.kernels is not None and not any(options.wants_kernel(kernel) for kernel in seen):
        return f"no kernel was profiled: kernels={options.kernels!r} matches none of those that ran: {ran}"
    if not options.marks:
        return f"no kernel was profiled: none of those that ran has marks: {ran}; auto= (--auto) marks them as they are"
    why = "; ".join(f"{kernel}: {text}" for kernel in seen for text in notes.get(kernel, ()))
    return f"no kernel was profiled: no automatic mark could be placed in those that ran: {ran}{why and f'. {why}'}"


def _listed(seen: Mapping[str, int]) -> str:
    """The kernels that ran, the most often launched first."""
    names = [f"{kernel} ({count:,})" for kernel, count in sorted(seen.items(), key=lambda one: -one[1])]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


hooks: list[Callable[[Profile], Callable[[], None] | None]] = []
"""Front ends add a function here; it is called when a profile begins and gives what to call when it ends."""

_stack: list[Profile] = []


def attach(hook: Callable[[Profile], Callable[[], None] | None]) -> None:
    """Let every profile start a front end by `hook`, one that already runs too."""
    hooks.append(hook)
    running = active()
    if running is not None:
        running.join(hook)


def active() -> Profile | None:
    """The running profile, if any and if WARPLENS=0 does not switch it off."""
    return _stack[-1] if _stack and _stack[-1].enabled else None


profile = Profile
