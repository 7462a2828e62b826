"""overhead=: a variant above the budget is woven anew with less, and the trace holds the last weaving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.event_clock import EventClock
from warplens.driver import libcuda
from warplens.errors import UsageError
from warplens.launch.overhead_budget import MAX_WEAVINGS, TRIAL_LAUNCHES
from warplens.launch.thinning import Thinning
from warplens.launch.timing import TIMED_LAUNCHES
from warplens.launch.variant import Variant
from warplens.options import COLD, Options
from warplens.record.capture import AUTOMATIC, OVERHEAD_BUDGET, Launch
from warplens.record.layout import Kind
from warplens.record.track_writer import TrackWriter
from warplens.session.session import Session
from warplens.weave.weaving import Selection

PLAIN_NS = 2000


class Device(EventClock):
    """The device is behind the host: it has reached no event before a launch, and those after it when `done`."""

    def __init__(self) -> None:
        super().__init__()
        self.done, self.before, self.after = True, set[int](), set[int]()

    def event(self, stream: int) -> int:
        handle = super().event(stream)
        (self.after if len(self.before) > len(self.after) else self.before).add(handle)
        return handle

    def reached(self, event: int) -> bool:
        return self.done and event in self.after


class Everything(set[int]):
    """A set that holds every event."""

    def __contains__(self, item: object) -> bool:
        return True


class Recorded:
    """A recorded launch: region `a` has ten times the records of `b`. With `records` of 0, it has no regions."""

    def __init__(self, variant: Variant, records: int, lasts: int, automatic: bool) -> None:
        self.variant, self.generation, self.thinning = variant, variant.generation, variant.thinning
        writer = TrackWriter(128)
        writer.start(0, 0)
        for number in range(records):
            writer.record(Kind.BEGIN, 1, 10 * number + 1)
            writer.record(Kind.END, 1, 10 * number + 2)
        if records:
            writer.record(Kind.BEGIN, 2, 2000)
            writer.record(Kind.END, 2, 9000)
        writer.exit(lasts, 1000)
        extra = {AUTOMATIC: True} if automatic else {}
        regions = {1: "a", 2: "b"} if records else {}
        self.launch = Launch("k", (1, 1, 1), (32, 1, 1), regions, 128, writer.to_bytes(), extra=extra)

    def collect(self) -> Launch:
        return self.launch


class Program:
    """Launches one variant; `cost` says how much slower each weaving makes it."""

    def __init__(
        self,
        gpu: EventClock,
        cost: Callable[[Thinning], float],
        blocks: int = 1,
        records: int = 10,
        lasts: int = 10_000,
        automatic: bool = False,
        **options: Any,
    ) -> None:
        self.gpu, self.cost, self.records, self.lasts, self.automatic = gpu, cost, records, lasts, automatic
        self.session = Session(Options(**{"overhead": 0.05, **options}))
        self.variant = self.session.variant("k", None, None)
        self.session.start_trial(self.variant, Selection(), (blocks, 1, 1))
        self.woven: list[Thinning] = []

    def launch(self, count: int) -> str:
        """What was launched: P plain, R recorded."""
        return "".join(self.session.launch(self.variant, 0, self._plain, self._record) for _ in range(count))

    def _plain(self) -> str:
        self.gpu.now += PLAIN_NS
        return "P"

    def _record(self, captured: bool) -> Callable[[], str]:
        if self.variant.thinning not in self.woven:
            self.woven.append(self.variant.thinning)

        def go() -> str:
            self.gpu.now += PLAIN_NS * self.cost(self.variant.thinning)
            launch = Recorded(self.variant, self.records, self.lasts, self.automatic)
            self.session.add(launch)
            self.variant.newest = launch.launch
            return "R"

        return go


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    monkeypatch.setattr(libcuda, "driver", lambda: device)
    return device


def test_a_variant_inside_the_budget_keeps_all_marks(gpu: Device) -> None:
    program = Program(gpu, lambda thinning: 1.04, blocks=4096)
    assert program.launch(2 * TRIAL_LAUNCHES) == "R" * TRIAL_LAUNCHES + "P" * TRIAL_LAUNCHES
    assert program.launch(3) == "RRR"
    launches, _ = program.session.collect()
    assert len(launches) == TRIAL_LAUNCHES + 3
    assert program.woven == [Thinning()]
    assert not program.session.notes
    assert launches[0].extra[OVERHEAD_BUDGET]["tried"] == [
        {"step": 1, "omitted": [], "lives": False, "slowdown": pytest.approx(1.04)}
    ]


def test_a_large_launch_above_the_budget_is_sampled_first(gpu: Device) -> None:
    program = Program(gpu, lambda thinning: 1.3 if thinning.step == 1 else 1.04, blocks=512)
    program.launch(4 * TRIAL_LAUNCHES)
    assert program.woven == [Thinning(), Thinning(17, flat=True)]
    launches, _ = program.session.collect()
    assert len(launches) == 2 * TRIAL_LAUNCHES, "those of the first weaving are dropped"
    (note,) = program.session.notes["k"]
    assert "1.30x" in note
    assert "one block in 17 is recorded; 1.04x now" in note
    assert launches[0].extra[OVERHEAD_BUDGET]["step"] == 17


def test_the_densest_region_of_a_small_launch_is_left_out(gpu: Device) -> None:
    program = Program(gpu, lambda thinning: 1.02 if "a" in thinning.omitted else 1.2)
    program.launch(4 * TRIAL_LAUNCHES)
    assert program.woven == [Thinning(), Thinning(omitted=frozenset("a"))]
    (note,) = program.session.notes["k"]
    assert "'a' left out; 1.02x now" in note


def test_a_kernel_that_nothing_helps_is_woven_a_few_times_and_keeps_the_best(gpu: Device) -> None:
    costs = {Thinning(): 1.5, Thinning(17, flat=True): 1.2, Thinning(17, frozenset("a"), flat=True): 1.4}
    program = Program(gpu, lambda thinning: costs[thinning], blocks=512)
    program.launch(20 * TRIAL_LAUNCHES)
    assert len(program.woven) <= MAX_WEAVINGS
    assert program.variant.thinning == Thinning(17, flat=True)
    (note,) = program.session.notes["k"]
    assert "1.20x now, still above the budget" in note


def test_lifetimes_alone_are_recorded_if_every_weaving_with_marks_is_above(gpu: Device) -> None:
    program = Program(gpu, lambda thinning: 1.03 if thinning.lives else 1.1, automatic=True)
    program.launch(20 * TRIAL_LAUNCHES)
    assert program.variant.thinning.lives
    assert program.woven[0] == Thinning()
    assert len(program.woven) <= MAX_WEAVINGS + 1
    (note,) = program.session.notes["k"]
    assert "1.10x" in note
    assert note.endswith("only the lifetimes of its warps are recorded; 1.03x now")
    budget = program.session.collect()[0][0].extra[OVERHEAD_BUDGET]
    assert budget["lives"]
    assert [one["lives"] for one in budget["tried"]] == [False] * (len(program.woven) - 1) + [True]


def test_every_cheaper_weaving_of_a_large_launch_is_tried(gpu: Device) -> None:
    """Regions that are left out and a sample of half the blocks may both be what helps."""
    costs = {17: 1.09, 31: 1.07}
    program = Program(
        gpu, lambda thinning: 1.01 if thinning.lives else costs.get(thinning.step, 1.3), 1024, automatic=True
    )
    program.launch(30 * TRIAL_LAUNCHES)
    gone = frozenset("a")
    assert program.woven == [
        Thinning(), Thinning(17, flat=True), Thinning(31, flat=True), Thinning(31, gone, flat=True),
        Thinning(31, flat=True, lives=True),
    ]  # fmt: skip


def test_a_kernel_above_the_budget_even_without_marks_is_told(gpu: Device) -> None:
    program = Program(gpu, lambda thinning: 1.08 if thinning.lives else 1.12, automatic=True)
    program.launch(20 * TRIAL_LAUNCHES)
    assert program.variant.thinning.lives
    (note,) = program.session.notes["k"]
    assert note.endswith("1.08x now, still above the budget, which no weaving of this kernel meets")


def test_a_weaving_with_marks_that_costs_no_more_than_lifetimes_alone_stays(gpu: Device) -> None:
    costs = {True: 1.09, False: 1.08}
    program = Program(gpu, lambda thinning: costs[thinning.lives] if thinning else 1.2, automatic=True)
    program.launch(20 * TRIAL_LAUNCHES)
    assert any(thinning.lives for thinning in program.woven)
    assert program.variant.thinning == Thinning(omitted=frozenset("a"))
    (note,) = program.session.notes["k"]
    assert note.endswith("'a' left out; 1.08x now, still above the budget, which no weaving of this kernel meets")


@pytest.mark.parametrize("options", [{"automatic": False}, {"automatic": True, "strict": True}])
def test_marks_of_the_author_stay_and_strict_allows_no_unmarked_kernel(gpu: Device, options: dict[str, Any]) -> None:
    program = Program(gpu, lambda thinning: 1.03 if thinning.lives else 1.1, **options)
    program.launch(20 * TRIAL_LAUNCHES)
    assert not any(thinning.lives for thinning in program.woven)


def test_lifetimes_alone_are_not_tried_again(gpu: Device) -> None:
    """Any mark would harm the kernel, so that its first weaving has none."""
    program = Program(gpu, lambda thinning: 1.1, automatic=True, records=0)
    program.launch(10 * TRIAL_LAUNCHES)
    assert program.woven == [Thinning()]
    (note,) = program.session.notes["k"]
    assert "nothing that was left out made it faster" in note


def test_marks_within_the_budget_stay_if_only_the_margin_is_missed(gpu: Device) -> None:
    program = Program(gpu, lambda thinning: 1.01 if thinning.lives else 1.048, automatic=True)
    program.launch(20 * TRIAL_LAUNCHES)
    assert not any(thinning.lives for thinning in program.woven)


def test_a_program_of_few_launches_is_recorded_as_without_a_budget(gpu: Device) -> None:
    program = Program(gpu, lambda thinning: 1.5, blocks=4096)
    assert program.launch(TRIAL_LAUNCHES) == "R" * TRIAL_LAUNCHES
    assert len(program.session.collect()[0]) == TRIAL_LAUNCHES


def test_far_too_many_records_are_sampled_from_the_second_launch_on(gpu: Device) -> None:
    program = Program(gpu, lambda thinning: 1.5 if thinning.step == 1 else 1.01, blocks=512, records=40, lasts=4000)
    assert program.launch(3) == "RRR"
    assert program.woven == [Thinning(), Thinning(17, flat=True)]
    launches, _ = program.session.collect()
    assert len(launches) == 2
    assert launches[0].extra[OVERHEAD_BUDGET]["estimate"] > 1.2
    (note,) = program.session.notes["k"]
    assert "an estimated" in note
    assert "one block in 17 is recorded; too few launches could be measured with and without marks" in note
    small = Program(gpu, lambda thinning: 1.5, blocks=1, records=40, lasts=4000)
    small.launch(3)
    assert small.woven == [Thinning()], "a launch of one wave gains nothing"


def test_where_nothing_can_be_measured_the_estimate_decides(gpu: Device) -> None:
    """Every time holds a part of the host's way: the device reaches the first event before the launch is made."""
    gpu.after = Everything()
    program = Program(gpu, lambda thinning: 1.5, blocks=512, records=10, lasts=4000)
    program.launch(2 * TIMED_LAUNCHES + 3)
    assert program.woven == [Thinning(), Thinning(17, flat=True)]
    assert program.variant.settled
    (note,) = program.session.notes["k"]
    assert "an estimated 1.1" in note


def test_nothing_waits_for_the_device(gpu: Device) -> None:
    program = Program(gpu, lambda thinning: 1.5, blocks=4096)
    gpu.done = False
    assert program.launch(3 * TRIAL_LAUNCHES).endswith("P" * 2 * TRIAL_LAUNCHES)
    gpu.done = True
    assert program.launch(1) == "R"
    assert program.woven == [Thinning(), Thinning(31, flat=True)]


@pytest.mark.parametrize("launches", [1, 3, 20])
def test_the_quota_holds(gpu: Device, launches: int) -> None:
    program = Program(gpu, lambda thinning: 1.3 if thinning.step == 1 else 1.0, blocks=512, launches=launches)
    program.launch(100)
    assert len(program.session.collect()[0]) == launches
    short = Program(gpu, lambda thinning: 1.3, blocks=512, launches=launches, skip=COLD)
    short.launch(3)
    assert len(short.session.collect()[0]) == min(launches, 2)


def test_a_variant_that_no_front_end_can_weave_anew_is_left_alone(gpu: Device) -> None:
    session = Session(Options(overhead=0.05))
    variant = session.variant("k", None, None)
    assert variant.settled
    assert session.launch(variant, 0, lambda: "P", lambda captured: lambda: "R") == "R"


@pytest.mark.parametrize("wrong", [0, -0.1, "5%", float("inf"), float("nan")])
def test_a_budget_is_a_share_above_0(wrong: Any) -> None:
    with pytest.raises(UsageError, match="overhead"):
        Options(overhead=wrong)
