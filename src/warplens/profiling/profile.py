"""wl.profile: a session whose end makes the trace."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from warplens.auto.rules import MOST_MARKS
from warplens.decode import decode
from warplens.decode.last_records import last_records
from warplens.errors import UsageError, WarplensError
from warplens.frontends import registry
from warplens.frontends.graphs import watch_graphs
from warplens.frontends.ranges import watch_ranges
from warplens.frontends.torch_distributed import watch_collectives
from warplens.launch.block_sampler import sample_launches
from warplens.options import Options
from warplens.profiling.background_decoder import BackgroundDecoder
from warplens.profiling.decorator import F, inside
from warplens.profiling.explain import explain_losses, explain_no_kernel
from warplens.profiling.hang_watch import HangWatch
from warplens.profiling.job_messages import JobMessages
from warplens.profiling.job_ranks import JobRank, checked_rank
from warplens.profiling.rank_watch import RankWatch
from warplens.profiling.region_check import is_wanted, verifier
from warplens.profiling.source_hashes import hash_sources
from warplens.profiling.torch_recorder import Recorder, TorchResult
from warplens.profiling.trace_paths import last_records_path, trace_path
from warplens.ptx.garbage_pause import garbage_pause
from warplens.record.capture import Capture, Launch
from warplens.session import Session
from warplens.session.collective_log import CollectiveLog
from warplens.session.stack import check_free, is_running
from warplens.text import say
from warplens.trace.io import rank_part, save_rank
from warplens.trace.model import Trace, empty_table

if TYPE_CHECKING:
    from warplens.profiling.live_view import LiveView


class Profile(Session):
    """A profile: a context manager, and a decorator that profiles each call.

    Records are copied and decoded while the block runs, as far as it leaves time, and the rest when it ends. If the
    block fails, what ran is still collected and written, and the block's own error is raised unchanged.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        rank: int | None = None,
        job: JobRank | None = None,
        whole_program: bool = False,
        counts_all: bool = False,
        **options: Any,
    ) -> None:
        self.job = job or (JobRank.here() if rank is None else JobRank(checked_rank(rank, "rank")))
        self.path = None if path is None else trace_path(path, dataset=self.job.is_one_of_many)
        super().__init__(Options.of(options), whole_program=whole_program, counts_all=counts_all)
        self.rank = self.job.rank
        self._recorder: Recorder | None = None
        self._torch: TorchResult | None = None
        self._trace: Trace | None = None
        self._last_records: Trace | None = None
        self.hang_watch: HangWatch | None = None
        """What looks for kernels that do not end, while the block runs."""
        self._rank_watch: RankWatch | None = None
        self.live: LiveView | None = None
        """With live=True, what shows the kernels while the block runs."""
        self.left_out = False
        """Whether this turned out to be a rank that is not to be recorded."""

    def reset(self) -> None:
        super().reset()
        self._decode_in_background()

    def _decode_in_background(self) -> None:
        rank = None if self.path is None else self.job.rank
        self._background = BackgroundDecoder(self.run, self.options.trace_bytes, rank)
        self.buffers.idle = self._background.work

    @property
    def trace(self) -> Trace:
        """The decoded trace; available once the block has ended."""
        if self._trace is None:
            raise WarplensError("the trace is not there yet: it is made when the `with wl.profile(...)` block ends")
        return self._trace

    @property
    def last_records(self) -> Trace:
        """With mode="aggregate" and full="ring": the latest records of each warp, once the block has ended."""
        if self._last_records is None:
            raise WarplensError(
                'there are no last records: wl.profile(..., mode="aggregate", full="ring") has them when its block ends'
            )
        return self._last_records

    @property
    def has_last_records(self) -> bool:
        """Whether the block has ended and warps kept their latest records."""
        return self._last_records is not None

    @property
    def has_trace(self) -> bool:
        """Whether the block has ended and its trace was decoded."""
        return self._trace is not None

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
        if self.job.is_one_of_many and self.enabled:
            self._prepare_rank()
        if self.options.torch and self.enabled:
            self._recorder = Recorder(self.options.torch)
            self._recorder.start()
        try:
            self.resume()
        except BaseException:
            self._stop_torch()
            raise
        # A program that does not know of warplens may be stopped while a kernel hangs, with or without --watch.
        if self.enabled and (self.options.watch is not None or self.whole_program):
            self.buffers.watched = True
            self.hang_watch = HangWatch(
                self, self.path, self.rank, save=self._save, in_job=self.job.is_one_of_many, leave=self._withdraw_live
            )
            if self.job.by_program:
                self.hang_watch.before_death = self.write_part
            self.hang_watch.start()
        if self._rank_watch is not None:
            self._rank_watch.start()
        if self.enabled and self.options.live:
            path = self.path
            if path is not None and self.job.is_one_of_many:
                path = rank_part(path, self.rank)
            from warplens.profiling.live_view import LiveView  # which brings templates and a server

            self.live = LiveView(self, path, self.job, "" if self.path is None else self.path.stem)
            self.live.start()
        return self

    def _prepare_rank(self) -> None:
        """Note what a rank of a job notes besides its launches."""
        self.collectives = CollectiveLog()
        self.run.is_news = JobMessages(self.path).is_first
        self._rank_watch = RankWatch(self, self.rank, None if self.path is None else self._save_part)

    def join_job(self, job: JobRank) -> None:
        """Go on as a rank of a job, which this process has just joined."""
        if not job.is_one_of_many or self.job.is_one_of_many or not self.enabled or self.has_trace:
            return
        if self.path is not None and self.path.is_file():
            self.path.unlink(missing_ok=True)  # `warplens run` has asked whether to replace it
        self.job, self.rank = job, job.rank
        self._background.stop()
        self._decode_in_background()  # what is encoded names the rank
        self._prepare_rank()
        if is_running(self):
            self._stops.append(watch_collectives(self))
        if self.hang_watch is not None:
            self.hang_watch.join_job(self.rank)
        assert self._rank_watch is not None
        self._rank_watch.start()

    def leave_out(self) -> None:
        """Record nothing more and write nothing: this process is a rank that nobody asked for."""
        self.left_out = True
        self.pause()

    def write_part(self) -> None:
        """Write what a rank has recorded so far."""
        if self._rank_watch is not None and self.path is not None:
            self._rank_watch.write_part()

    def _start_front_ends(self) -> None:
        super()._start_front_ends()
        if self.enabled:
            # A whole program's kernels are counted even where no automatic marks are asked for.
            unmarked = self.options.changes_any_kernel or self.whole_program

            def failed(library: str, error: WarplensError) -> None:
                if unmarked:
                    self.note(library, str(error))

            self._stops += [registry.watch(failed, unmarked=unmarked), watch_graphs(self)]
            if self.options.within is not None:
                self._stops.append(watch_ranges())
        if self.collectives is not None:
            self._stops.append(watch_collectives(self))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.pause()
        watch = self.hang_watch if os.getpid() == self.process else None
        try:
            if watch is not None:
                watch.profile_ends()
            if self._rank_watch is not None and os.getpid() == self.process:
                self._rank_watch.stop()
            self._end(error)
        finally:
            self._stop_live()
            if watch is not None:
                watch.stop()

    def _stop_live(self) -> None:
        if self.live is not None and os.getpid() == self.process:
            self.live.stop()

    def _withdraw_live(self) -> None:
        if self.live is not None:
            self.live.withdraw()

    def _end(self, error: BaseException | None) -> None:
        if os.getpid() != self.process:
            # What a forked child inherited is its parent's to collect and to write.
            self._recorder = None
        recorder = self._stop_torch()
        if not self.enabled or self.left_out or os.getpid() != self.process:
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
            say(failure)

    def __repr__(self) -> str:
        where = "" if self.path is None else f" {str(self.path)!r}"
        return f"<warplens.profile{where}: {'no trace yet' if self._trace is None else repr(self._trace)}>"

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
            say(f"not aligned with the torch trace: {self._torch.problem}")

    @garbage_pause()  # or it looks at all objects of the program and at those of thousands of launches, while one waits
    def _finish(self) -> None:
        decoded = self._background.stop()
        launches, problems = self.collect()  # a kernel that still runs is shown until it ends
        self._stop_live()
        # The estimates need the headers of all blocks.
        if launches:
            from warplens.calibrate.record_cost import with_estimates  # which weaves kernels of its own

            launches = with_estimates(launches, self.note)
        launches = sample_launches(launches, self.options.trace_bytes, self._background.ranked)
        self._trace = decode(Capture(launches, device=self.device, rank=self.rank), decoded=decoded)
        self._trace.meta = replace(
            self._trace.meta,
            notes={kernel: tuple(said) for kernel, said in self.notes.items()},
            source_hashes=hash_sources(self._trace.meta),
            pc_samples={} if self.run.stalls is None else self.run.stalls.result(self.run.codes).to_json(),
            rank_notes=self._rank_notes(ended=True),
        )
        rings = last_records(launches)
        if rings:
            self._last_records = decode(Capture(rings, device=self.device, rank=self.rank))
        verify = verifier(self.run.codes, launches)
        if is_wanted(self.options.verify):
            self._trace.verifier = verify
        if self.path is not None and len(self._trace):
            self._save(self._trace, self.path)
        if self.path is not None and self._last_records is not None:
            self._save(self._last_records, last_records_path(self.path))
        if problems and not launches:
            raise WarplensError("; ".join(problems))
        whose = f"rank {self.rank}: " if self.job.is_one_of_many else ""
        for text in [*problems, *explain_losses(launches, self._trace)]:
            say(f"{whose}{text}")
        if self.user_mistake is not None:
            raise self.user_mistake
        self._refuse_empty_ranges(launches)
        try:
            self._refuse_silence(launches, self._trace)
        except WarplensError as silence:
            # A rank of a job may run other kernels than the others; an error would end the whole job.
            if self.whole_program or not self.job.is_one_of_many:
                raise
            say(f"{whose}{silence}")

    def _save(self, trace: Trace, path: Path) -> None:
        """Write the trace; a rank of a job writes its own part of the job's folder."""
        if self.job.is_one_of_many:
            if not trace.meta.rank_notes:  # of a rank that hangs
                trace.meta = replace(trace.meta, rank_notes=self._rank_notes())
            save_rank(trace, path, self.rank)
            return
        if path == self.path and path.is_dir():
            # Processes that the program started have written it, as the ranks of a job.
            path = self.path = path.with_name(f"{path.stem}.main{path.suffix}")
        trace.save(path, force=True)

    def _rank_notes(self, *, ended: bool = False) -> dict[str, Any]:
        watch = self._rank_watch
        return {} if watch is None else {str(self.rank): watch.notes(ended=ended).to_json()}

    def _save_part(self, trace: Trace) -> None:
        """Write what a rank has so far; its last part replaces it."""
        assert self.path is not None
        save_rank(trace, self.path, self.rank)

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
                "remove that profile, or run the program by itself"
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


def profile(
    path: str | os.PathLike[str] | None = None,
    *,
    rank: int | None = None,
    kernels: str | None = None,
    auto: str | bool | Iterable[str] | None = None,
    regions: Mapping[str, str] | Iterable[str] | None = None,
    launches: int | None = None,
    skip: int | str = 0,
    every: int = 1,
    within: str | None = None,
    from_step: int | None = None,
    to_step: int | None = None,
    warps: Collection[int] | None = None,
    blocks: Collection[int] | int | slice | None = None,
    sms: Collection[int] | None = None,
    records_per_warp: int | None = None,
    bytes_per_block: int | None = None,
    full: Literal["stop", "ring"] = "stop",
    clock: Literal["32", "64"] = "32",
    buffer: Literal["global", "shared"] = "global",
    granularity: Literal["warp", "warpgroup", "block"] = "warp",
    store: Literal["auto", "now"] = "auto",
    mode: Literal["trace", "aggregate"] = "trace",
    memory: int | None = None,
    trace_bytes: int | None = None,
    overhead: float | None = None,
    most_marks: int = MOST_MARKS,
    least_occupancy: float = 1.0,
    strict: bool = False,
    verify: bool = True,
    stalls: bool = False,
    dump_ir: str | os.PathLike[str] | None = None,
    override: str | os.PathLike[str] | None = None,
    torch: bool | Mapping[str, Any] = False,
    watch: float | None = None,
    on_hang: Literal["continue", "kill"] | None = None,
    live: bool = False,
    **unknown: NoReturn,
) -> Profile:
    """Record the kernels that run inside a `with` block, or inside each call of a decorated function.

        with wl.profile("out.warplens") as prof:
            kernel[grid](...)
        prof.trace.stats()

    The trace is made when the block ends, also if the block fails. A file at `path` is replaced.

    Where it goes
    path              the `.warplens` file to write (None: the trace stays in memory); in a job of several ranks, a
                      folder into which each rank writes its part
    rank              number of this process in a job (None: what torchrun, mpirun or Slurm say, else 0)

    What is marked
    kernels           regular expression: only kernels whose name matches are profiled (None: all)
    auto              mark operations with the source as it is: True, or classes such as "loads,mma" (None: off)
    regions           regions by source lines, such as {"softmax": "attn.py:120-134"} (None: none)
    most_marks        number of sites that `auto` may mark in one kernel
    least_occupancy   share of its blocks per SM that a kernel must keep with automatic marks; below it, it gets
                      fewer marks (1.0: all blocks)
    overhead          slowdown by marks that is allowed, such as 0.05 for 5 %: a variant of a Triton, CuPy, cuda.core,
                      cuda.bindings or numba kernel that is measured above it records fewer blocks, then fewer regions,
                      and last only the lifetimes of its warps (None: no limit)
    strict            raise an error if a kernel cannot take the automatic marks, instead of giving it fewer
    dump_ir           folder to write each Triton kernel's TTGIR to, to put marks into by hand (None: off)
    override          folder of such files: a kernel that has one is compiled from it (None: off)

    Which launches; all of these count per variant of a kernel
    launches          number of launches to record (None: all)
    skip              number of launches to pass over first; "cold" leaves out the first one if more follow
    every             record every n-th launch
    within            regular expression: record only inside NVTX or torch.profiler ranges that match (None: always)
    from_step         first step to record (None: the first of all); the program calls wl.step() after each step
    to_step           last step to record (None: the last of all)

    Which part of a launch
    warps, sms        numbers of the warps and SMs to record (None: all)
    blocks            blocks to record: a count, a slice or numbers (None: all)
    granularity       one track per "warp", "warpgroup" or "block"

    How records are kept
    mode              "trace" keeps every record. "aggregate" keeps, for each warp and region, the number of executions,
                      their sum, the shortest, the longest and a histogram, in memory that does not grow with the
                      length of the run: for long and persistent kernels. There is no timeline then
    records_per_warp  number of records that a track can hold (None: chosen per kernel)
    bytes_per_block   the same limit as bytes of all tracks of a block (None: no limit)
    full              when a track is full: "stop" keeps the first records, "ring" the latest
    clock             bits of the clock in each record; "64" for regions of more than two seconds
    buffer            where records go while the kernel runs: "global" or "shared" memory
    store             "now" stores each record at its mark, so that a kernel that traps or hangs leaves all of them;
                      "auto" may keep records in registers for a while, which costs the kernel less
    memory            bytes of device memory for records (None: a quarter of the device, at most half of what is free)
    trace_bytes       size that the trace file should not exceed; beyond it, only some blocks of each launch are kept,
                      spread over SMs and time (None: keep everything)

    Kernels that do not end
    watch             seconds: if a launch takes longer, say where its warps are and write the trace while it runs; each
                      record is then stored at its mark, as with store="now" (None: off)
    on_hang           what becomes of the program then: "continue" or "kill", which ends it with code 1 (None: continue,
                      but end it if a signal asks it to end and the kernel does not)

    While it runs
    live              show kernels, regions and warps while the program runs: in a browser, at an address that is
                      printed, or with `warplens view --live`. Each record is then stored at its mark. full="ring" shows
                      the latest records of a kernel that runs for long (False: off)

    Besides
    verify            look up in the machine code what each region timed, when the trace is saved
    stalls            sample what the warps of each region are stalled by, while the kernels run: CUPTI's PC sampling,
                      which needs libcupti (PyTorch has it) and the permission to use hardware counters (False: off)
    torch             also run torch.profiler: True, or its options; see `Profile.torch` (False: off)
    """
    given = dict(locals())
    if callable(path):
        raise WarplensError("write @wl.profile() with brackets: @wl.profile alone decorates nothing")
    options = {field.name: given[field.name] for field in fields(Options)}
    return Profile(path, rank=rank, **options, **unknown)
