"""How long launches took with marks and without, side by side in one run: by the driver's events around them.

Once as many launches of a kernel are recorded as were asked for, the others run as they are. A few of either kind are
timed, and the quickest counts: whatever else comes between the events makes a launch look longer, never shorter. Before
each the GPU is kept busy for a moment, else the time would hold the host's way to the launch.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from warplens.driver.libcuda import Driver, driver
from warplens.errors import WarplensError
from warplens.record.capture import Launch
from warplens.record.cost_keys import SLOWDOWN_MEASURED

MOST, LEAST = 8, 2
"""Launches of each kind that are timed, and that make a number; the first ones load code and do not count."""
BUSY_NS = 300_000
"""Longer than the host takes from the first event to the launch: what the GPU waits for in between would count."""

Span = tuple[int, int]
"""The events around a launch."""


@dataclass
class _Shape:
    """Launches of one kernel and shape: marked and unmarked ones."""

    marked: list[Span] = field(default_factory=list)
    plain: list[Span] = field(default_factory=list)


class Timings:
    """Times of one profile. Where the driver cannot be had there are none, and nothing else changes."""

    def __init__(self, launches: int | None) -> None:
        """`launches` is how many of each kernel are recorded: where all are, or too few, nothing can be compared."""
        self._shapes: dict[tuple[str, Hashable], _Shape] = {}
        self._nothing: list[Span] = []
        self._wait: dict[int, int | None] = {}
        """The kernel that keeps the GPU busy, in each context."""
        self._open = threading.local()
        self._off = launches is None or launches <= LEAST
        self._ratios: dict[str, float] | None = None

    def begin(self, kernel: str, shape: Hashable, stream: int, *, marked: bool) -> None:
        """Called right before a launch in this thread."""
        self.expect(kernel, shape, stream, marked=marked)
        self.start()

    def expect(self, kernel: str, shape: Hashable, stream: int, *, marked: bool) -> None:
        """Called where it is known which launch comes, but not yet whether it will be recorded: `start` says so."""
        known = self._shapes.setdefault((kernel, shape), _Shape())
        spans = known.marked if marked else known.plain
        wanted = not self._off and len(spans) < MOST and (marked or bool(known.marked))
        self._open.launch = (spans, stream) if wanted else None
        self._open.first = None

    def start(self) -> None:
        """Called when nothing but the expected launch is left to do."""
        expected = getattr(self._open, "launch", None)
        if expected is None:
            return
        try:
            lib, (_, stream) = driver(), expected
            if not self._nothing:
                self._keep_busy(lib, stream)
                self._nothing.append((lib.event(stream), lib.event(stream)))
            self._keep_busy(lib, stream)
            self._open.first = lib.event(stream)
        except WarplensError:
            self._off = True

    def end(self) -> None:
        """Called right after it."""
        expected, first = getattr(self._open, "launch", None), getattr(self._open, "first", None)
        self._open.launch = self._open.first = None
        if expected is not None and first is not None:
            spans, stream = expected
            try:
                spans.append((first, driver().event(stream)))
            except WarplensError:
                self._off = True  # the launch failed, which is for the program to find

    def _keep_busy(self, lib: Driver, stream: int) -> None:
        context = lib.context()
        if context not in self._wait:
            self._wait[context] = lib.function(lib.load(_WAIT.encode() + b"\0"), "warplens_wait")
        wait = self._wait[context]
        if wait is not None:
            lib.launch(wait, (1, 1, 1), (1, 1, 1), [], 0, stream)

    def with_slowdown(self, launch: Launch) -> Launch:
        """Add the measured slowdown of its kernel to a launch, where there is one."""
        if self._ratios is None:
            self._ratios = self._read()
        ratio = self._ratios.get(launch.kernel)
        return launch if ratio is None else replace(launch, cost={**launch.cost, SLOWDOWN_MEASURED: ratio})

    def _read(self) -> dict[str, float]:
        sums: dict[str, tuple[float, float]] = {}
        try:
            lib = driver()
            for context in self._wait:
                with lib.inside(context):
                    lib.synchronize()
            nothing = min((lib.elapsed_ns(*span) for span in self._nothing), default=0.0)
            for (kernel, _), shape in self._shapes.items():
                both = [self._quickest(lib, spans, nothing) for spans in (shape.marked, shape.plain)]
                if all(both):
                    before = sums.get(kernel, (0.0, 0.0))
                    sums[kernel] = before[0] + both[0], before[1] + both[1]
        except WarplensError:
            return {}  # a kernel that failed, which others tell
        return {kernel: marked / plain for kernel, (marked, plain) in sums.items()}

    @staticmethod
    def _quickest(lib: Driver, spans: list[Span], nothing: float) -> float:
        """0 where too few were timed, or they hardly took longer than two events with nothing between them."""
        times = [lib.elapsed_ns(*span) - nothing for span in spans][1:]
        return min(times) if len(times) >= LEAST and min(times) > nothing else 0.0


_WAIT = f"""\
.version 7.0
.target sm_70
.address_size 64
.visible .entry warplens_wait() {{
	.reg .pred %p<2>; .reg .b64 %rd<4>;
	mov.u64 %rd1, %globaltimer;
$L_wait:
	mov.u64 %rd2, %globaltimer;
	sub.u64 %rd3, %rd2, %rd1;
	setp.lt.u64 %p1, %rd3, {BUSY_NS};
	@%p1 bra $L_wait;
	ret;
}}
"""
