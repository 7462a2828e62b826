"""Collectives of torch.distributed are noted: when, which, and whom the rank waited for."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.stamping_driver import StampingDriver
from warplens.driver import libcuda
from warplens.frontends import torch_distributed
from warplens.frontends.torch_distributed import watch_collectives
from warplens.options import Options
from warplens.record.rank_notes import ALL, NONE, CollectiveCall
from warplens.session import Session
from warplens.session.collective_log import CollectiveLog

PAUSE_S = 0.002


class FakeDistributed:
    """As much of torch.distributed as the notes need, of rank 1 of 4. Every call takes a while."""

    def __init__(self) -> None:
        self.backend, self.called = "gloo", list[str]()
        self.module, self.package = ModuleType(torch_distributed._MODULE), ModuleType("torch.distributed")
        world = SimpleNamespace(group_name="0")
        self._world = SimpleNamespace(pg_coalesce_state={})

        def all_reduce(tensor: Any, op: Any = None, group: Any = None, async_op: bool = False) -> None:
            self.call("all_reduce")

        def all_gather_object(objects: Any, obj: Any, group: Any = None) -> None:
            self.module.all_reduce(None)
            self.call("all_gather_object")

        def broadcast(tensor: Any, src: int | None = None, group: Any = None, async_op: bool = False) -> None:
            self.call("broadcast")

        def reduce(tensor: Any, dst: int, op: Any = None, group: Any = None, async_op: bool = False) -> None:
            self.call("reduce")

        def all_to_all_single(output: Any, input: Any, output_split_sizes: Any = None, group: Any = None) -> None:
            self.call("all_to_all_single")

        def barrier(group: Any = None, async_op: bool = False) -> None:
            self.call("barrier")

        functions = (all_reduce, all_gather_object, broadcast, reduce, all_to_all_single, barrier)
        shared = {function.__name__: function for function in functions}
        self.module.__dict__.update(
            shared,
            _world=self._world,
            group=SimpleNamespace(WORLD=world),
            is_initialized=lambda: True,
            get_rank=lambda group=None: 1,
            get_backend=lambda group=None: self.backend,
            get_process_group_ranks=lambda group: [1, 3] if group is not None else [0, 1, 2, 3],
        )
        self.package.__dict__.update(shared)

    def call(self, name: str) -> None:
        self.called.append(name)
        time.sleep(PAUSE_S)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeDistributed:
    fake = FakeDistributed()
    stream = SimpleNamespace(cuda_stream=11)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda: stream)))
    monkeypatch.setitem(sys.modules, "torch.distributed", fake.package)
    monkeypatch.setitem(sys.modules, torch_distributed._MODULE, fake.module)
    return fake


@pytest.fixture
def session(torch: FakeDistributed) -> Iterator[Session]:
    running = Session(Options.of({}))
    running.collectives = CollectiveLog()
    stop = watch_collectives(running)
    yield running
    stop()


def noted(session: Session) -> list[CollectiveCall]:
    assert session.collectives is not None
    return list(session.collectives.noted())


def test_a_call_is_noted_with_its_times_and_still_made(torch: FakeDistributed, session: Session) -> None:
    for owner in (torch.package, torch.module):
        owner.all_reduce(None)
    first, second = noted(session)
    assert torch.called == ["all_reduce", "all_reduce"]
    assert (first.group, first.number, second.number) == ("0:0-3", 0, 1)
    assert (first.operation, first.waits_for) == ("all_reduce", ALL)
    assert first.end_ns - first.begin_ns >= PAUSE_S * 1e9
    assert first.end_ns <= second.begin_ns


def test_groups_are_counted_apart(torch: FakeDistributed, session: Session) -> None:
    group = SimpleNamespace(group_name="7")
    torch.package.barrier()
    torch.package.barrier(group)
    torch.package.all_reduce(None, group=group)
    assert [(call.group, call.number) for call in noted(session)] == [("0:0-3", 0), ("7:1, 3", 0), ("7:1, 3", 1)]


def test_calls_that_are_made_of_others_are_noted_once(torch: FakeDistributed, session: Session) -> None:
    torch.package.all_gather_object([], None)
    assert torch.called == ["all_reduce", "all_gather_object"]
    assert [call.operation for call in noted(session)] == ["all_gather_object"]


@pytest.mark.parametrize(
    ("name", "arguments", "waits_for"),
    [
        ("broadcast", {"src": 3}, "3"),
        ("broadcast", {"src": 1}, NONE),
        ("broadcast", {}, NONE),
        ("reduce", {"dst": 1}, ALL),
        ("reduce", {"dst": 0}, NONE),
        ("all_to_all_single", {"input": None}, ALL),
        ("all_to_all_single", {"input": None, "output_split_sizes": [0, 4]}, NONE),
    ],
)
def test_whom_a_rank_waits_for(
    name: str, arguments: dict[str, Any], waits_for: str, torch: FakeDistributed, session: Session
) -> None:
    getattr(torch.package, name)(None, **arguments)
    (call,) = noted(session)
    assert call.waits_for == waits_for


def test_an_end_that_nobody_waited_for_is_not_known(torch: FakeDistributed, session: Session) -> None:
    torch.package.all_reduce(None, async_op=True)
    torch.backend = "cpu:gloo,cuda:nccl"
    torch.package.all_reduce(None)
    torch.package.barrier()
    torch._world.pg_coalesce_state = {"0": []}
    torch.package.barrier()
    assert [bool(call.end_ns) for call in noted(session)] == [False, False, True, False]


def test_data_on_a_device_is_stamped_by_its_stream(
    torch: FakeDistributed, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = StampingDriver()
    for module in (libcuda, torch_distributed):
        monkeypatch.setattr(module, "driver", lambda: driver)
    tensor = SimpleNamespace(is_cuda=True)
    torch.package.all_reduce(tensor)
    torch.package.all_reduce(tensor, async_op=True)
    driver.graphs.begin(11)
    torch.package.all_reduce(tensor)
    first, second, captured = noted(session)
    assert first.device_end_ns - first.device_begin_ns >= PAUSE_S * 1e9
    assert second.device_begin_ns > first.device_end_ns
    assert second.device_end_ns == captured.device_begin_ns == 0
    assert driver.stamped == [11, 11, 11]


def test_a_version_that_is_not_known_is_left_alone(torch: FakeDistributed, session: Session) -> None:
    del torch.module.get_process_group_ranks
    torch.package.all_reduce(None)
    assert torch.called == ["all_reduce"]
    assert noted(session) == []


def test_nothing_is_left_behind(torch: FakeDistributed) -> None:
    before = torch.package.all_reduce
    running = Session(Options.of({}))
    running.collectives = CollectiveLog()
    watch_collectives(running)()
    assert torch.package.all_reduce is before
    torch.package.all_reduce(None)
    assert noted(running) == []


def test_compiled_programs_know_the_wrapped_functions(torch: FakeDistributed, monkeypatch: pytest.MonkeyPatch) -> None:
    remaps = {torch.module.all_reduce: "in place"}
    name = "torch.distributed._functional_collectives"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(traceable_collective_remaps=remaps))
    running = Session(Options.of({}))
    stop = watch_collectives(running)
    assert remaps[torch.package.all_reduce] == remaps[torch.module.all_reduce] == "in place"
    stop()
