"""The evidence about one variant of a kernel that hypotheses are judged by, each part computed when first asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from warplens.analyse.analysis import Analysis, Answers
from warplens.analyse.code_counts import LANES, SCHEDULERS, CodeCounts, code_of
from warplens.analyse.devices import find_peak
from warplens.analyse.finding import Gain, Number, Spread, spread
from warplens.analyse.kernel_lives import lives_of
from warplens.analyse.known_facts import KnownFacts
from warplens.analyse.lifetimes import Float, Int, Lifetimes, Mask
from warplens.analyse.load_waits import awaiting, followers
from warplens.analyse.ncu import NcuKernel, match_kernel
from warplens.analyse.parallelism import Parallelism, parallelism
from warplens.analyse.profiling_cost import profiling_cost
from warplens.analyse.ramp import RAMP
from warplens.analyse.region_purity import verified_kernels
from warplens.analyse.region_purpose import Purpose
from warplens.analyse.retries import retried_regions
from warplens.analyse.role_waits import ROLES
from warplens.analyse.roofline import NEAR_ROOF, Roofline, device_of, roofline
from warplens.analyse.source_files import SourceText
from warplens.analyse.variant_verdicts import VariantVerdicts
from warplens.analyse.wait_classes import WaitClass, wait_class
from warplens.analyse.waves import WAVES
from warplens.record.capture import SAMPLED
from warplens.record.cost_keys import ALONE_CYCLES
from warplens.trace.schema import LaunchInfo

T = TypeVar("T")
_MOST_UNMARKED = 0.55
_SHOWN = 0.5
_CACHE_OVER_MEMORY = 1.4
"""How much faster than the memory the L2 cache is."""
_MOSTLY_MEMORY = 0.6
_UNKNOWN_ROOF = 0.75
_REACHABLE = 0.9
"""Of a peak."""
_LEAST_BUSY = 0.5


class Evidence(VariantVerdicts):
    """One variant of a kernel: `label` in `answers.trace`, with what is `given` beyond the trace."""

    def __init__(self, answers: Answers, label: str, given: KnownFacts) -> None:
        self.answers, self.label, self.given = answers, label, given
        self.trace = answers.trace
        self.lives = lives_of(Lifetimes.of(self.trace), label)
        self.launches = range(len(self.lives.launches))
        self.kernel = self.lives.launches[self.launches[0]].kernel

    def of(self, analysis: Analysis[T]) -> T:
        """The answer of an analysis for this variant."""
        return self.answers.of(analysis)[self.label]

    # --- what it is

    @property
    def infos(self) -> list[LaunchInfo]:
        return [info for at in self.launches if (info := self.lives.launches[at].info)]

    @property
    def clock(self) -> str:
        """gpu, simulated or cpu."""
        return next((info.clock for info in self.infos), "gpu")

    @property
    def sampled(self) -> bool:
        """Whether only some blocks of its launches have records."""
        return any(SAMPLED in info.extra for info in self.infos)

    @cached_property
    def resources(self) -> Mapping[str, Any]:
        """What the launches say of registers, shared and local memory."""
        return self.infos[0].extra if self.infos else {}

    @cached_property
    def kinds(self) -> dict[str, Purpose]:
        """The purpose of every region."""
        return self.lives.purpose_of(self.answers.waits)

    # --- times

    @cached_property
    def durations_ns(self) -> Float:
        """The duration of each launch."""
        return np.array([self.lives.launches[at].duration_ns for at in self.launches], np.float64)

    @cached_property
    def kernel_ns(self) -> float:
        return self.given.time_ns or float(self.durations_ns.mean())

    @cached_property
    def block_ns(self) -> Float:
        """The duration of each block of each launch."""
        parts = [self.lives.all_blocks_of(at) for at in self.launches]
        return np.concatenate([part.end - part.begin for part in parts]).astype(np.float64)

    @cached_property
    def common(self) -> dict[str, Number]:
        """Evidence that goes with every finding: the kernel's time over launches and its blocks' over blocks, unless
        these live much longer than their records show."""
        kernel: dict[str, Number] = {"kernel_ns": spread(self.durations_ns, "launches")}
        return kernel | ({"block_ns": spread(self.block_ns, "blocks")} if self.shown_life >= _SHOWN else {})

    @cached_property
    def shown_life(self) -> float:
        """The share of the blocks' lives between their first and last record; 1 where all lives are known."""
        known = any(self.lives.launches[at].known_blocks > self.lives.launches[at].blocks for at in self.launches)
        return 1.0 if known else 1 - self.of(RAMP).unmarked

    @cached_property
    def cost(self) -> float | None:
        """The share of the kernel's time that profiling took, where it is known."""
        return profiling_cost(self.trace, self.label)

    @cached_property
    def warps(self) -> Parallelism:
        return parallelism(self.lives, self.lives.waiting(self.answers.waits))

    @cached_property
    def shares(self) -> dict[str, float]:
        """The share of warp time of each region, and of the code outside all regions (`""`)."""
        return {**self.warps.regions, "": self.warps.unmarked}

    @cached_property
    def followers(self) -> dict[str, dict[str, float]]:
        """For each region, how much warp time the regions take that directly follow it, as far as they do."""
        return followers(self.lives, self.warps.regions)

    def share_with_users(self, region: str) -> float:
        """The share of warp time of a region and of those that directly follow it and load nothing themselves: a warp
        waits for its loads where it uses them."""
        own = self.shares.get(region, 0.0)
        users = self.followers.get(region, {}) if region else {}
        return own + sum(share for name, share in users.items() if name in self.code and not self.code[name].loads)

    @cached_property
    def waiting(self) -> dict[str, float]:
        """The share of warp time of each region that waits, largest first."""
        return {region: part for region, part in self.warps.regions.items() if self.kinds[region] is Purpose.WAIT}

    @cached_property
    def fetching(self) -> dict[str, float]:
        """The share of warp time of each region that moves memory or waits for data, largest first."""
        return {
            region: part
            for region, part in self.warps.regions.items()
            if self.kinds[region] is Purpose.MEMORY
            or (self.kinds[region] is Purpose.WAIT and self.wait_class(region) is WaitClass.DATA)
        }

    @cached_property
    def awaiting(self) -> dict[str, float]:
        """The share of warp time that regions which work wait for loads: their own, or those of the code before."""
        return awaiting(self)

    @cached_property
    def retried(self) -> list[str]:
        """The regions that try a lock, once per instance."""
        return retried_regions(self)

    @cached_property
    def issuing(self) -> float | None:
        """The share of the schedulers' cycles in which they issue an instruction of a region; None where the code of a
        region is not known, or has a loop of unknown length."""
        known = [self.code.get(region) for region in self.warps.regions]
        if any(one is None or one.unbounded or one.loops for one in known):
            return None
        return self.issued_at_least * self.plain_ns / self.kernel_ns

    @cached_property
    def issued_at_least(self) -> float:
        """The same of the kernel's time without marks; loops of unknown length count once."""
        issued = self._per_launch({name: one.instructions for name, one in self.code.items() if name})
        return float(issued / (SCHEDULERS * max(self.warps.sms, 1.0) * self.plain_ns * self.lives.cycles_per_ns))

    @property
    def mostly_unmarked(self) -> bool:
        """Whether so much is not marked that what runs beside a region is not known."""
        return self.warps.unmarked > _MOST_UNMARKED and not self.cut_off

    @property
    def cut_off(self) -> bool:
        """Whether warps made more records than fit, so that a part of their lives has none."""
        sizes = (("capacity", "most_written"), ("records_per_warp", "records_needed"))
        return any(0 < info.extra.get(fits, 0) < info.extra.get(made, 0) for info in self.infos for fits, made in sizes)

    def spans_in(self, regions: Sequence[str]) -> Int:
        """The rows of the spans of `regions` in this variant."""
        lives = self.lives
        return lives.spans_in(np.ones(len(lives), bool), self._mask(regions))

    @cached_property
    def own_rows(self) -> Int | None:
        """The rows of this variant; None where these are all."""
        lives = self.lives
        return None if lives is lives.whole else lives.rows_of(np.arange(len(lives)))

    def cycles_in(self, regions: Sequence[str]) -> Float:
        """Of each track of this variant, the cycles in `regions`."""
        cells = self.lives.cells
        return cells.by_track(cells.own, self._mask(regions), len(self.lives))

    def _mask(self, regions: Sequence[str]) -> Mask:
        found = np.zeros(len(self.lives.regions), bool)
        found[[self.lives.region_codes[name] for name in regions if name in self.lives.region_codes]] = True
        return found

    @cached_property
    def mark_cycles(self) -> Float:
        """Of each track of the variant, the cycles of its warp that its records took, as far as they are known."""
        cost = self.infos[0].cost if self.infos else {}
        cells = self.lives.cells
        spans = np.bincount(cells.track, cells.count, len(self.lives))
        return np.asarray(2 * float(cost.get(ALONE_CYCLES, 0.0)) * spans, np.float64)

    def over_blocks(self, values: Any) -> Spread:
        return spread(values, "blocks")

    # --- other tools

    @cached_property
    def ncu(self) -> NcuKernel | None:
        return next((one for one in self.given.ncu if match_kernel(one.kernel, [self.kernel])), None)

    @cached_property
    def point(self) -> Roofline | None:
        """The kernel's place under the roofline, where its work and its device's peaks are known."""
        given, device, kernels = self.given, device_of(self.trace), self.lives.whole.kernels
        mine = len(kernels) == 1 if given.work_of is None else given.work_of in (self.kernel, self.label)
        moved, flops = given.bytes, given.flops
        if moved is None and self.ncu is not None and not flops:
            moved = self.ncu.dram_bytes
            mine = mine or moved is not None
        if not mine or not (flops or moved) or not (given.measured or find_peak(device)):
            return None
        return roofline(
            self.trace,
            flops=flops,
            bytes=moved,
            kernel=self.label,
            dtype=given.dtype,
            time_ns=self.kernel_ns,
            measured=given.measured,
        )

    @cached_property
    def roof(self) -> tuple[str, float]:
        """What bounds the kernel (memory, compute, neither, unknown), and the share of that roof that it reaches.

        Nsight Compute counts what was really moved; declared work is what had to be moved.
        """
        one = self.ncu
        if one is not None and one.compute is not None and one.memory is not None:
            return ("neither" if one.bound == "latency" else one.bound), max(one.compute, one.memory)
        if self.point is None:
            busy = self.matrix_units_busy
            return ("compute", busy) if busy >= NEAR_ROOF else ("unknown", 0.0)
        return self.point.bound, self.point.of_roof

    @cached_property
    def matrix_units_busy(self) -> float:
        """The share of their peak that the matrix units reach without marks, at least: the products in the PTX of each
        region, once per instance."""
        peak = find_peak(device_of(self.trace))
        if peak is None or "fp16" not in peak.tflops:
            return 0.0
        flops = self._per_launch({name: one.matrix_flops for name, one in self.code.items() if name})
        return float(min(flops / self.plain_ns / (1000 * peak.tflops["fp16"]), 1.0))

    @cached_property
    def memory_reached(self) -> float | None:
        """The share of the memory's peak that the kernel asks for without marks: the bytes in the PTX of each region,
        once per instance. None where that is not known, as with loops of unknown length inside a region."""
        return None if self._bytes_unknown else self._share_of_peak(lambda one: one.moved_bytes, block=True)

    @cached_property
    def memory_at_most(self) -> float | None:
        """The same, with all bytes of the sectors that are touched: the memory moves no more than that."""
        unknown = self._bytes_unknown
        return None if unknown else self._share_of_peak(lambda one: one.moved_bytes + one.wasted_bytes, block=True)

    @cached_property
    def memory_at_least(self) -> float:
        """The share of the memory's peak that the kernel surely moves: what blocks read alike counts once, what may be
        in a cache not at all, as tiles of matrix products, and what is gathered. 0 where nothing is known."""
        if any(one.matrix for one in self.code.values()):
            return 0.0
        sizes = dict(zip("xyz", self.infos[0].grid, strict=True)) if self.infos else {}

        def own(one: CodeCounts) -> float:
            again = sum(
                moved * (1 - 1 / math.prod(size for axis, size in sizes.items() if axis not in axes))
                for axes, moved in one.moved_by.items()
            )
            return one.moved_bytes - one.gathered_bytes - again

        return self._share_of_peak(own, block=True) or 0.0

    @cached_property
    def memory_busy(self) -> bool:
        """Whether the kernel surely moves so much, while SMs have blocks, that the memory's throughput is the limit."""
        return self.memory_at_least / max(1 - self.of(WAVES).idle, _LEAST_BUSY) >= NEAR_ROOF

    @cached_property
    def shared_busy(self) -> float:
        """The share of the kernel's time without marks in which accesses keep an SM's shared memory busy, at least: one
        cycle each, and one more for each lane that has to wait for others of its access."""
        cycles = self._per_launch({name: one.shared * one.mean_ways for name, one in self.code.items()})
        return float(cycles / max(self.warps.sms, 1.0) / (self.plain_ns * self.lives.cycles_per_ns))

    @property
    def room(self) -> float:
        """The share of the time that is left to gain, at most, before the schedulers, the shared memory or the memory
        of the device are busy all the time."""
        return max(1 - max(self.issued_at_least, self.shared_busy, self.memory_at_least) / _REACHABLE, 0.0)

    @property
    def _bytes_unknown(self) -> bool:
        return any(one.unknown_bytes or one.repeats for one in self.code.values())

    def _share_of_peak(self, amount: Callable[[CodeCounts], float], *, block: bool) -> float | None:
        peak = find_peak(device_of(self.trace))
        if peak is None or not any(one.moved_bytes or one.block_bytes for one in self.code.values()):
            return None
        moved = self._per_launch({name: amount(one) for name, one in self.code.items()})
        if block:
            by_block = {name: one.block_bytes / self._warps_in(name) for name, one in self.code.items()}
            moved += self._per_launch({name: one for name, one in by_block.items() if one})
        return moved / self.plain_ns / peak.bandwidth

    def _warps_in(self, region: str) -> float:
        """How many warps of a block run a region, in the blocks in which any does."""
        lives, cells = self.lives, self.lives.cells
        tracks = np.arange(len(lives))
        if region in lives.region_codes:
            tracks = np.unique(cells.track[cells.region == lives.region_codes[region]])
        return max(len(tracks) / max(len(np.unique(lives.block[tracks])), 1), 1.0)

    @cached_property
    def most_gain(self) -> float:
        """The largest gain that leaves time to move what the code requests, through a cache that is not much faster
        than the memory. Code that requests much more may get it from the cache of its SM, and so may what all blocks
        read alike, or what is read at addresses that are not known."""
        kept = self._share_of_peak(lambda one: one.moved_by.get("", 0.0) + one.gathered_bytes, block=False) or 0.0
        moved = max((self.memory_reached or 0.0) - kept, 0.0)
        return 1 - min(moved, _MOSTLY_MEMORY) / _CACHE_OVER_MEMORY

    @property
    def surely_gained(self) -> float:
        """Of a gain that the memory may limit, the part that is left where nothing says how far its roof is."""
        return _UNKNOWN_ROOF if self.memory_reached is None else 1.0

    def gain(self, least: float, most: float | None = None, roof: float = 1.0) -> Gain:
        """The interval around an estimate (see `Gain.around`) that also leaves time for the memory."""
        return Gain.around(least, most, min(roof, self.most_gain))

    @property
    def plain_ns(self) -> float:
        """The kernel's time without what marks add to it, as far as that is known."""
        return self.kernel_ns * (1 - (self.cost or 0.0))

    def _per_launch(self, amounts: Mapping[str, float]) -> float:
        """The sum over all instances of the regions in one launch, also in blocks that were not recorded; code outside
        all regions runs once per warp."""
        whole = sum(amount * self.instances.get(name, 0) for name, amount in amounts.items())
        return float(whole * self.blocks_per_recorded / len(self.launches))

    @cached_property
    def instances(self) -> dict[str, float]:
        """How often each region ran in what was recorded, and how many warps did."""
        lives, cells = self.lives, self.lives.cells
        found = np.bincount(cells.region, cells.count, len(lives.regions))
        counts = {lives.regions[code]: float(found[code]) for code in np.flatnonzero(found)}
        return counts | {"": len(lives)}

    @property
    def warps_per_block(self) -> int:
        """The warps of a block that were launched, or that left records."""
        info = next(iter(self.infos), None)
        return max(-(-math.prod(info.block) // LANES) if info else 1, round(self.lives_per_block))

    @property
    def lives_per_block(self) -> float:
        """The warps of a block that left records, on average."""
        return len(self.lives) / max(len(self.lives.blocks), 1)

    @cached_property
    def blocks_per_recorded(self) -> float:
        """How many blocks ran for each one that was recorded: 1 unless blocks were sampled."""
        ran = sum(
            len(self.lives.all_blocks_of(at).number) * self.lives.launches[at].blocks_per_known for at in self.launches
        )
        parts = [self.lives.blocks_of(at) for at in self.launches]
        return float(ran / max(sum(part.stop - part.start for part in parts), 1))

    @property
    def at_roof(self) -> bool:
        return self.roof[1] >= NEAR_ROOF

    # --- source

    @cached_property
    def locations(self) -> Mapping[str, str]:
        """The source location of each region of this kernel."""
        return self.trace.meta.locations_of(self.kernel)

    def named(self, region: str) -> str:
        """A region in a sentence; the code outside all regions has no name."""
        return f"`{region}`" if region else "the code outside all regions"

    def source(self, file: str) -> SourceText | None:
        return self.answers.source(file)

    @cached_property
    def code(self) -> dict[str, CodeCounts]:
        """What the code of each region is made of, where the trace has it; `""` is the code outside all regions."""
        return code_of(self.infos)

    @cached_property
    def machine_code(self) -> dict[str, Mapping[str, int]]:
        """Instructions of each region by class, where its machine code was verified."""
        known = verified_kernels(self.trace).get(self.kernel, [])
        return {one.region: one.counts for each in known for one in each.regions if one.counts}

    def wait_class(self, region: str) -> WaitClass:
        """What a waiting region waits for. What only some roles of a block run is no barrier of the block."""
        code = self.code.get(region)
        if code is not None and not all(region in one.role.regions for one in self.of(ROLES).roles):
            code = replace(code, barriers=0)
        return wait_class(region, code)
