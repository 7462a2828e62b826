"""Where a trace puts moments that all SMs share: right after a grid-wide barrier, for several ways to release one.

    PYTHONPATH=src python -m benchmarks.placement [--release NAME ...] [--launches 25] [--threads 512] [--json FILE]

A barrier does not let all SMs go at once, so what their instants are apart is the barrier's doing and the clock fit's.
Three things take the two apart:

- `timer` releases at an agreed reading of the global timer, which every SM reads by itself: nothing travels. It rests
  on the timer that the fit rests on, so alone it shows the fit's noise, not whether the SMs' timers agree.
- `exchanged`: every SM also exchanges messages with every other. One's way there less the other's way back is twice
  what the trace puts between the two wrongly; the global timer has no part in it. `late_ns` is what that says of the
  SMs, `closure_ns` what the pairs disagree by (the exchange's own error), `spread_ns` the barrier by clocks so mended.
- `one clock`: SMs of a GPC share a clock, so the spread among them needs no fit at all.

`stated_ns` is the trace's error bar, the residuals of its anchors. It is one moment's, to either side: moments of two
SMs may be off by it in opposite directions, so all SMs are within it when the first and the last are within twice as
much. Once is counted too, which is stricter than what the trace states.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.lib.gpu_programs import Memory, Program, buffer, context, driver
from warplens.decode import decode
from warplens.decode.clock.domains import domains
from warplens.record.capture import Capture, Launch, write_capture
from warplens.trace.model import Trace

Float64 = npt.NDArray[np.float64]

THREADS, ROUNDS, EXCHANGES = 512, 5, 6
LINE = 128
BAR_NS = 150
SHARED = 120 << 10
"""More than half of an SM's shared memory: no two blocks on one SM."""

RELEASES = {
    "lines": ("-DRELEASE=0",),
    "own": ("-DRELEASE=1",),
    "group": ("-DRELEASE=2",),
    "group volatile": ("-DRELEASE=2", '-DPOLL="ld.volatile.global.u64"'),
    "group acquire": ("-DRELEASE=2", '-DPOLL="ld.acquire.gpu.global.u64"'),
    "equal": ("-DRELEASE=3",),
    "equal paced": ("-DRELEASE=3", "-DPACE=448"),
    "timer": ("-DRELEASE=4",),
    "cluster": ("-DRELEASE=5",),
}
"""Ways to release the barrier, see kernels/placement.cu. No poll by ld.cv: it is a weak load, which ptxas takes out of
the loop."""


def memory_bytes(blocks: int) -> int:
    """What the kernel wants: two lines of counters, the flags, a line per pair, 16 ways per block."""
    return LINE * (2 + max(blocks, 32) + blocks * blocks + blocks)


def records(rounds: int, blocks: int, exchanges: int) -> int:
    """Slots of one warp: an instant and an anchor per round; per meeting what is sent, heard, and an anchor."""
    return 3 * rounds + (blocks * (2 * exchanges + 2) if exchanges else 0)


@dataclass(frozen=True)
class Moments:
    """What one launch's trace says, by block: when it passed each round's barrier (by its first warp), and when its
    messages were sent and heard (by the first warp that did), meetings in order."""

    passed: Float64
    passed_cycle: npt.NDArray[np.int64]
    sent: Float64
    heard: Float64

    @classmethod
    def of(cls, trace: Trace, exchanges: int) -> Moments:
        codes, names = trace.codes("region")
        block, warp, start, cycle = (trace.numpy(name) for name in ("block", "warp", "start_ns", "start_cycle"))
        blocks = int(block.max()) + 1

        def table(region: str, of: Any) -> Any:
            rows = np.flatnonzero(codes == names.index(region))
            rows = rows[np.lexsort((cycle[rows], warp[rows], block[rows]))]
            return of[rows].reshape(blocks, len(np.unique(warp[rows])), -1)

        at = table("past the barrier", cycle)
        first = at.argmin(axis=1, keepdims=True)
        passed = np.take_along_axis(table("past the barrier", start), first, 1)[:, 0]
        sent = heard = np.zeros((blocks, 0, 0))
        if exchanges:
            sent = table("sent", start)[:, 0].reshape(blocks, -1, exchanges)
            heard = table("heard", start).min(axis=1).reshape(blocks, -1, exchanges)
        return cls(
            passed.astype(np.float64),
            np.take_along_axis(at, first, 1)[:, 0],
            sent.astype(np.float64),
            heard.astype(np.float64),
        )


def exchanged(sent: Float64, heard: Float64) -> tuple[Float64, Float64]:
    """By how much the trace places each block late, and what each pair of blocks disagrees with that by.

    Of a pair's exchanges the quickest counts: nothing held it up, so its two ways are most alike. The first is left
    out: one side may not have been listening.
    """
    blocks = len(sent)
    a, b = np.triu_indices(blocks, 1)
    meeting = (a + b) % blocks
    # A block sits out the round in which it would meet itself.
    at_a, at_b = meeting - (meeting > 2 * a % blocks), meeting - (meeting > 2 * b % blocks)
    there = (heard[b, at_b] - sent[a, at_a])[:, 1:]
    back = (heard[a, at_a] - sent[b, at_b])[:, 1:]
    quickest = (there + back).argmin(axis=1)[:, None]
    ahead = np.take_along_axis(there - back, quickest, 1)[:, 0] / 2
    pairs = np.zeros((blocks, blocks))
    pairs[a, b], pairs[b, a] = ahead, -ahead
    late: Float64 = pairs.mean(axis=0)
    return late, ahead - (late[b] - late[a])


def one_clock(moments: Moments, mhz: float) -> npt.NDArray[np.int64]:
    """A number for each block; blocks on SMs that share a clock have the same."""
    lead = moments.passed_cycle[:, 0] - moments.passed[:, 0] * mhz / 1000
    return domains(lead, np.zeros(len(lead), np.int64), 0)


def summary(values: Any) -> dict[str, float]:
    flat = np.ravel(np.asarray(values, np.float64))
    return {
        "median": round(float(np.median(flat)), 1),
        "p95": round(float(np.quantile(flat, 0.95)), 1),
        "max": round(float(flat.max()), 1),
    }


def spread(passed: Float64) -> Float64:
    """From the first SM's instant to the last one's, by round."""
    result: Float64 = np.ptp(passed, axis=0)
    return result


def result(traces: Sequence[Trace], exchanges: Sequence[int]) -> dict[str, Any]:
    """What the launches of one release say; `exchanges` is how many messages each pair had in each of them."""
    spreads, within, p99, largest, by_exchange, late_all, closure = [], [], [], [], [], [], []
    errors: list[Float64] = []
    for trace, count in zip(traces, exchanges, strict=True):
        moments, clock = Moments.of(trace, count), trace.meta.clock
        spreads.append(spread(moments.passed))
        errors.append(np.abs(moments.passed - np.median(moments.passed, axis=0)).ravel())
        share = one_clock(moments, clock.mhz_mean)
        within.append([spread(moments.passed[share == number]).max() for number in np.unique(share)])
        p99.append(clock.residual_p99_ns)
        largest.append(clock.residual_max_ns)
        if count:
            late, misfit = exchanged(moments.sent, moments.heard)
            by_exchange.append(spread(moments.passed - late[:, None]))
            late_all.append(late)
            closure.append(float(np.sqrt(np.mean(misfit**2))))
    worst = np.array([of_launch.max() for of_launch in spreads])
    answer: dict[str, Any] = {
        "launches": len(traces),
        "moments": moment_errors(errors, p99, largest),
        "spread_ns": summary(spreads),
        "among SMs of one clock_ns": summary([max(of_launch) for of_launch in within]),
        "clocks": int(np.median([len(of_launch) for of_launch in within])),
        "stated_ns": {"p99": summary(p99), "max": summary(largest)},
        "launches within 150 ns": int((worst <= BAR_NS).sum()),
        **{
            f"launches within {often} the stated {key}": int((worst <= times * np.array(stated)).sum())
            for key, stated in (("p99", p99), ("max", largest))
            for often, times in (("once", 1), ("twice", 2))
        },
    }
    if late_all:
        late = np.array(late_all)
        apart = np.ptp(late, axis=1)
        stated = 2 * np.array(p99)[np.array(exchanges) > 0]
        answer["exchanged"] = {
            "launches": len(late),
            "spread_ns": summary(by_exchange),
            "late_ns": {"any two SMs": summary(apart), "rms": round(float(late.std()), 1)},
            "same SM every launch": round(float(late.mean(axis=0).std()), 1),
            "closure_ns": round(float(np.mean(closure)), 1),
            "launches whose SMs are within twice the stated p99": int((apart <= stated).sum()),
        }
    return answer


def moment_errors(errors: Sequence[Float64], p99: Sequence[float], largest: Sequence[float]) -> dict[str, Any]:
    """How far moments lie from the middle of their round, and how often no further than their launch states."""
    every = np.concatenate(errors)
    return {
        "count": len(every), "p50_ns": round(float(np.median(every)), 1),
        "p99_ns": round(float(np.quantile(every, 0.99)), 1), "max_ns": round(float(every.max()), 1),
        **{
            f"within the stated {key}": round(
                float(np.concatenate([one <= bound for one, bound in zip(errors, stated, strict=True)]).mean()), 4
            )
            for key, stated in (("p99", p99), ("max", largest))
        },
    }  # fmt: skip


class Grid:
    """One block on every SM of this GPU, and the memory they talk through."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.device = driver().device()
        self.blocks = self.device.sm_count
        self._memory = Memory(memory_bytes(self.blocks))

    def launch(self, program: Any, exchanges: int, threads: int = 0) -> Launch:
        threads = threads or self.threads
        self._memory.clear()
        lent = buffer("barrier", self.blocks, threads, records(ROUNDS, self.blocks, exchanges))
        arguments = np.uint64(self._memory.address), np.int32(ROUNDS), np.int32(exchanges), np.uint64(lent.address)
        program.launch(self.blocks, threads, *arguments, shared=SHARED)
        driver().synchronize()
        return lent.collect()

    def decoded(self, launch: Launch) -> Trace:
        trace = decode(Capture([launch], device=self.device))
        seen = len(np.unique(trace.numpy("sm")))
        if seen != self.blocks:
            raise SystemExit(f"{self.blocks} blocks ran on {seen} SMs; is the GPU shared with another process?")
        return trace


def measure(
    release: str,
    launches: int,
    exchanging: int,
    threads: int = THREADS,
    golden: str | None = None,
    moments: str | None = None,
) -> dict[str, Any]:
    """`launches` launches with one way to release, after one to warm up; the last `exchanging` of them exchange
    messages too. `golden` keeps the capture of one more with fewer warps, `moments` what the last one's trace says."""
    program, grid = Program("placement.cu", "barrier", *RELEASES[release]), Grid(threads)
    grid.launch(program, 0)
    counts = [0] * (launches - exchanging) + [EXCHANGES] * exchanging
    traces = []
    for count in counts:
        traces.append(grid.decoded(grid.launch(program, count)))
    if golden:
        write_capture(Capture([grid.launch(program, 0, threads=128)], device=grid.device), golden)
    if moments:
        np.savez_compressed(moments, **vars(Moments.of(traces[-1], counts[-1])))
    return result(traces, counts)


def table(results: dict[str, dict[str, Any]]) -> str:
    """The results as lines of text: spreads as median / 95 % / largest."""
    bars = {"<=150": "150 ns", "<=2 p99": "twice the stated p99", "<=max": "once the stated max"}
    head = ("release", "spread", "one clock", "stated p99", "max", *bars, "by exchange", "SMs late", "closure")
    rows = [head]
    for name, one in results.items():
        spreads = [
            "/".join(f"{value:.0f}" for value in part.values())
            for part in (one["spread_ns"], one["among SMs of one clock_ns"])
        ]
        stated = [f"{one['stated_ns'][key]['median']:.0f}" for key in ("p99", "max")]
        within = [f"{one[f'launches within {bar}']}/{one['launches']}" for bar in bars.values()]
        other = ("", "", "")
        if "exchanged" in one:
            by = one["exchanged"]
            other = (
                "/".join(f"{value:.0f}" for value in by["spread_ns"].values()),
                "/".join(f"{value:.0f}" for value in by["late_ns"]["any two SMs"].values()),
                f"{by['closure_ns']:.1f}",
            )
        rows.append((name, *spreads, *stated, *within, *other))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--release", nargs="+", choices=RELEASES, default=list(RELEASES), metavar="NAME", help="which ones"
    )
    parser.add_argument("--launches", type=int, default=25)
    parser.add_argument("--exchanging", type=int, default=3, help="launches that also exchange messages")
    parser.add_argument(
        "--threads", type=int, default=THREADS, help="per block: the more warps, the closer their polls"
    )
    parser.add_argument("--json", help="write the result here")
    parser.add_argument("--golden", help="keep one capture of the last release here")
    parser.add_argument("--moments", help="keep the moments of the last release's last launch here, as .npz")
    options = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    for name in options.release:
        keep = (options.golden, options.moments) if name == options.release[-1] else ()
        exchanging = min(options.exchanging, options.launches)
        results[name] = measure(name, options.launches, exchanging, options.threads, *keep)
        print(table({name: results[name]}), flush=True)
        if options.json:  # after each: a release that traps takes the process with it
            with open(options.json, "w") as out:
                json.dump({"context": context("python -m benchmarks.placement"), "releases": results}, out, indent=1)
    print("\n" + table(results))


if __name__ == "__main__":
    main()
