"""wl.sensitivity: delay the regions of a kernel one at a time, and measure how much of it reaches the kernel's end."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from warplens.analyse.region_sensitivity import Sensitivity
from warplens.errors import UsageError, WarplensError
from warplens.files import check_writable
from warplens.profiling.experiment import ROUNDS, Experiment, ExperimentOptions
from warplens.trace.model import Trace

CHECKED_RUNS = 8
"""Runs of each stage whose results are compared."""
MOST_RUNS = 4000
RECORDING_RUNS = 6
"""After so many recorded runs, variants that were launched less often are delayed too."""
IDENTICAL, DIFFERENT, VARYING, UNCHECKED = "identical", "different", "varying", "not checked"


@dataclass
class DelayedResults:
    """Compares what the program returns with and without delays."""

    plain: list[str | None] = field(default_factory=list)
    delayed: list[str | None] = field(default_factory=list)

    def add(self, value: Any, *, delayed: bool) -> None:
        some = self.delayed if delayed else self.plain
        some.append(digest(value))

    @property
    def verdict(self) -> str:
        if not self.plain or not self.delayed or None in (*self.plain, *self.delayed):
            return UNCHECKED
        if len(set(self.plain)) > 1:
            return VARYING
        return IDENTICAL if set(self.delayed) == set(self.plain) else DIFFERENT


def sensitivity(
    run: Callable[[], Any],
    kernels: str | None = None,
    *,
    regions: Iterable[str] | str | None = None,
    delays: Iterable[int] | None = None,
    rounds: int = ROUNDS,
    trace: str | os.PathLike[str] | None = None,
    force: bool = False,
    **profile: Any,
) -> Sensitivity:
    """Call `run`, which launches kernels, until every region's effect on the kernel's time is known.

    kernels   a regular expression: kernels to delay
    regions   names or regular expressions of regions to delay, one at a time (None: all that were recorded)
    delays    cycles to try besides 0 (None: up to about a fifth of the kernel's time in all)
    rounds    how often each delay is tried
    trace     a file to write the recorded launches to, with the result (`force` overwrites it)
    profile   other options of wl.profile that choose what is marked: auto=, most_marks=, least_occupancy=, `lines`
              in the place of regions=

    If `run` returns arrays or tensors, they are compared bit for bit with those of undelayed runs.
    """
    if not callable(run):
        raise UsageError(f"sensitivity(run={run!r}): expected a function that launches kernels")
    path = None if trace is None else check_writable(trace, force=force)
    asked = experiment_options(kernels, regions, delays, rounds, profile)
    experiment, check = Experiment(asked, alone=True), DelayedResults()
    if not experiment.enabled:
        raise WarplensError("WARPLENS=0 switches profiling off, so nothing can be measured; unset it")
    experiment.start()
    error: BaseException | None = None
    try:
        _run_stages(experiment, run, check)
    except BaseException as failure:
        error = failure
        raise
    finally:
        experiment.stop(error)
    answer = experiment.answer(check.verdict)
    if path is not None and experiment.trace is not None:
        with_sensitivity(experiment.trace, answer).save(path)
    if check.verdict == DIFFERENT:
        raise WarplensError(
            "the results changed under a delay: the program depends on the timing of its warps (a race), "
            "or a kernel reads what another one still writes"
        )
    return answer


def experiment_options(
    kernels: str | None,
    regions: Iterable[str] | str | None,
    delays: Iterable[int] | None,
    rounds: int,
    profile: dict[str, Any],
) -> ExperimentOptions:
    """The options of an experiment, checked. `lines` of the profile are its regions by source lines."""
    given = {**profile, "kernels": kernels}
    if "lines" in given:
        given["regions"] = given.pop("lines")
    names = (regions,) if isinstance(regions, str) else None if regions is None else tuple(regions)
    return ExperimentOptions(names, None if delays is None else tuple(delays), rounds, given)


def with_sensitivity(trace: Trace, answer: Sensitivity) -> Trace:
    """The trace that the experiment recorded, with its result."""
    trace.meta = replace(trace.meta, sensitivity=answer.to_json())
    return trace


def _run_stages(experiment: Experiment, run: Callable[[], Any], check: DelayedResults) -> None:
    runs = stage_runs = 0
    stage = experiment.stage
    while not experiment.done:
        value = run()
        runs, stage_runs = runs + 1, stage_runs + 1
        if stage_runs <= CHECKED_RUNS:
            check.add(value, delayed=experiment.trace is not None)
        if experiment.full or runs > MOST_RUNS or (stage == "recording" and stage_runs > RECORDING_RUNS):
            experiment.advance()
        if not experiment.done and experiment.stage != stage:
            stage, stage_runs = experiment.stage, 0
        if runs > MOST_RUNS:
            return


def digest(value: Any) -> str | None:
    """A checksum of what a program returned; None where it holds nothing that can be compared."""
    parts = _parts(value)
    if not parts:
        return None
    made = hashlib.sha256()
    for part in parts:
        made.update(len(part).to_bytes(8, "little") + part)
    return made.hexdigest()


def _parts(value: Any) -> list[bytes]:
    """The bytes of every array in a value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [part for item in value for part in _parts(item)]
    if isinstance(value, (bytes, bytearray)):
        return [bytes(value)]
    if isinstance(value, (int, float, complex, str, bool)):
        return [repr(value).encode()]
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # a tensor of torch, of any type
        import torch

        return [value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()]
    if hasattr(value, "get") and hasattr(value, "dtype"):  # an array of CuPy
        value = value.get()
    return [value.tobytes()] if hasattr(value, "tobytes") else []
