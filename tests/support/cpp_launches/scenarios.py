"""Programs whose C++ library launches kernels inside a profile. Each prints what happened as one line of JSON."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import warplens as wl
from tests.support.fake_driver import FakeDriver, fake_driver
from tests.support.vector_add_launch import PTX, Data
from warplens.driver import call_hooks as hook_file
from warplens.launch import buffers
from warplens.record.capture import HOST_NS
from warplens.session import active

U64, AT, INT = ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int
RUN = ctypes.CFUNCTYPE(INT, U64, ctypes.POINTER(ctypes.c_uint32), U64, AT, INT)
LOAD = ctypes.CFUNCTYPE(U64, AT, U64, ctypes.c_char_p)
BLOCKS, THREADS = 4, 32


class Machine:
    """The library of C++ code on a driver whose kernels the interpreter runs."""

    def __init__(self, gpu: FakeDriver, launcher: str | None, *, text: str = PTX) -> None:
        self.gpu, self.graphs, self.packed = gpu, {}, 0
        self.text, self.data = text, Data(gpu)
        self.calls = RUN(self._run), LOAD(self._load)
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.driver.fake_connect(*self.calls)
        self.library = ctypes.CDLL(launcher)

    def _run(self, function: int, sizes: Any, stream: int, given: int, packed: int) -> int:
        self.packed += packed
        kinds = self.gpu.parameter_sizes(function)
        if packed:
            at = (AT * 2).from_address(given)[1]
            places = [at, at + 8, at + 16, at + 24]
        else:
            places = list((AT * len(kinds)).from_address(given))
        raw = [ctypes.string_at(at, size) for at, size in zip(places, kinds, strict=True)]
        values = [one if len(one) > 8 else int.from_bytes(one, "little") for one in raw]
        self.gpu.launch(function, sizes[0:3], sizes[3:6], values, sizes[6], stream)
        return 0

    def _load(self, image: int | None, home: int, name: bytes | None) -> int:
        if name is None:
            return self.gpu.plain(self.text, "")
        if name == b"place":
            return int(self.data.places[home])
        if name == b"check":
            self.data.result()
            return 1
        if name == b"begin":
            self.graphs[home] = self.gpu.graphs.begin(home)
            return 0
        if name == b"end":
            graph = self.graphs[home]
            self.gpu.graphs.end(graph)
            self.graphs[graph.number] = graph
            return graph.number
        if name == b"replay":
            self.graphs[home].replay()
            return 0
        return self.gpu.plain(self.text, name.decode())

    def load(self, image: bytes | None = None, *, whole: bool = False) -> None:
        self.image = (self.text.encode() + b"\0") if image is None else image
        assert self.library.load(self.image, b"vector_add", int(whole)) == 0

    def launch(self, way: str = "plain", *, thread: bool = False, stream: int = 7, expect: int = 0) -> None:
        call = self.library.launch_in_thread if thread else self.library.launch
        status = call(way.encode(), BLOCKS, THREADS, U64(stream), *map(U64, self.data.places), 100)
        assert status == expect, status
        if not status:
            self.data.result()


def told(prof: Any) -> dict[str, Any]:
    """What a profile knows when it is over."""
    try:
        trace = prof.trace
        regions, launches = sorted(trace.regions), len(trace.meta.launches)
        spans, problem = len(trace.spans), ""
        tracks = len({(row["launch"], row["block"], row["warp"]) for row in trace.spans.to_pylist()})
    except wl.WarplensError as error:
        regions, launches, spans, tracks, problem = [], 0, 0, 0, str(error)
    return {"regions": regions, "launches": launches, "spans": spans, "tracks": tracks, "seen": prof.seen,
            "notes": prof.notes, "problem": problem,
            "order": [one.extra[HOST_NS] for one in trace.meta.launches] if launches else []}  # fmt: skip


def profiled(machine: Machine, work: Callable[[], None], **options: Any) -> dict[str, Any]:
    prof = wl.profile(auto="all", **options)
    problem = ""
    try:
        with prof:
            work()
    except wl.WarplensError as error:
        problem = str(error)
    fired = [woven for _, woven, _ in machine.gpu.fired]
    return {**told(prof), "fired": fired, "streams": [s for _, _, s in machine.gpu.fired], "raised": problem}


def ways(machine: Machine) -> dict[str, Any]:
    def work() -> None:
        machine.load()
        for way in ("plain", "ex", "cooperative", "packed", "own stream"):
            machine.launch(way, stream=0 if way == "own stream" else 7)

    return {**profiled(machine, work), "packed": machine.packed}


def library_kernels(machine: Machine) -> dict[str, Any]:
    def work() -> None:
        machine.load(whole=True)
        machine.launch()

    return profiled(machine, work)


def loaded_before(machine: Machine) -> dict[str, Any]:
    """The library has looked up its functions and loaded its code before the first profile begins."""
    machine.load()
    machine.launch()

    def work() -> None:
        machine.launch()
        machine.load()
        machine.launch()

    return profiled(machine, work)


def two_profiles(machine: Machine) -> dict[str, Any]:
    """Code that was loaded in one profile is launched in the next, and between them."""
    machine_code = profiled(machine, lambda: (machine.load(), machine.launch()))
    machine.launch()
    return {"first": machine_code, "second": profiled(machine, machine.launch)}


def quota(machine: Machine) -> dict[str, Any]:
    def work() -> None:
        machine.load()
        for _ in range(12):
            machine.launch()

    return profiled(machine, work, launches=2)


def unhurried_session() -> Any:
    """The session that runs, with calls of C++ threads that wait however busy the machine is."""
    hooks, _ = hook_file.call_hooks()
    assert hooks is not None
    hooks.set_patience(30000, 60000)
    session = active()
    assert session is not None
    return session


def threads(machine: Machine) -> dict[str, Any]:
    def work() -> None:
        unhurried_session()
        machine.load()
        for _ in range(3):
            machine.launch(thread=True)

    return profiled(machine, work)


def steady(machine: Machine) -> dict[str, Any]:
    """More launches than memory is lent for at once, of two shapes in turn, in a thread of Python's or of C++."""
    thread, asked = sys.argv[3] == "cpp", []

    def work() -> None:
        session = unhurried_session()
        launch = session.launch
        session.launch = lambda *given: asked.append(given) or launch(*given)
        machine.load()
        for number in range(40):
            machine.launch("ex" if number % 2 else "plain", thread=thread, stream=7 + number % 3)

    told = profiled(machine, work, records_per_warp=16, **json.loads(sys.argv[4]))
    return {**told, "asked": len(asked)}


def refilled(machine: Machine) -> dict[str, Any]:
    """A thread of C++ launches more than memory is lent for at once, and Python has time to lend more before it is
    used up."""
    asked, refills = [], []

    def work() -> None:
        session = unhurried_session()
        launch, lend_more = session.launch, session.lend_more
        session.launch = lambda *given: asked.append(given) or launch(*given)
        session.lend_more = lambda *given: (lend_more(*given), refills.append(given))
        machine.load()
        for number in range(30):
            machine.launch(thread=True)
            while len(refills) < (number + 4) // 8:  # each time that half of a shelf is used up
                time.sleep(0.001)

    buffers.MOST_READY = 8
    return {**profiled(machine, work, records_per_warp=16), "asked": len(asked), "refills": len(refills)}


def shelves(machine: Machine) -> dict[str, Any]:
    """Two profiles with a launch between them: the memory of the first must not be used by what follows."""
    sessions: list[Any] = []

    def work() -> None:
        if not sessions:
            machine.load()
        for _ in range(3 if sessions else 8):
            machine.launch()
        sessions.append(active())
        engines.extend(active().buffers.engines())

    engines: list[Any] = []
    profiled(machine, work, records_per_warp=16)
    machine.launch()
    told = profiled(machine, work, records_per_warp=16)
    return {**told, "in_use": [engine.in_use for engine in engines]}


def refused_later(machine: Machine) -> dict[str, Any]:
    """The driver takes some woven launches and refuses those that follow."""

    def work() -> None:
        machine.load()
        for number in range(8):
            if number == 4:
                machine.driver.fake_refuse_times(701, 2)
            machine.launch()

    return profiled(machine, work, records_per_warp=16)


def captured_between(machine: Machine) -> dict[str, Any]:
    """A graph is captured and replayed while memory for further launches is at hand."""
    given = (U64(7), *map(U64, machine.data.places), 100)

    def work() -> None:
        machine.load()
        machine.launch()
        machine.launch()
        assert machine.library.replay(b"plain", 2, 0, BLOCKS, THREADS, *given) == 0
        machine.data.result()
        machine.launch()

    return profiled(machine, work, records_per_warp=16)


def locked(machine: Machine) -> dict[str, Any]:
    """A call that keeps Python's lock waits for a thread of C++ that launches."""
    begun = time.monotonic()

    def work() -> None:
        machine.load()
        library = ctypes.PyDLL(sys.argv[2])
        launch = library.launch_in_thread
        # The kernels of this driver need Python too, so this launch ends only where it reaches the driver alone.
        launch.restype = INT
        for _ in range(20):
            machine.driver.fake_refuse(1)
            status = launch(b"plain", BLOCKS, THREADS, U64(7), *map(U64, machine.data.places), 100)
            assert status == 1, status

    return {**profiled(machine, work), "seconds": time.monotonic() - begun}


def refused(machine: Machine) -> dict[str, Any]:
    """The driver refuses the woven kernel, and takes the plain one."""

    def work() -> None:
        machine.load()
        machine.driver.fake_refuse(701)
        machine.launch()
        machine.launch()

    return profiled(machine, work)


def fails(machine: Machine) -> dict[str, Any]:
    """A launch that the driver refuses in any form comes back with the driver's status."""

    def work() -> None:
        machine.load(b"\x7fELF" + bytes(60))
        machine.driver.fake_refuse(1)
        machine.launch(expect=1)

    return profiled(machine, work)


def graph(machine: Machine) -> dict[str, Any]:
    way, early, launches = sys.argv[3].encode(), int(sys.argv[4]), int(sys.argv[5])
    given = (U64(7), *map(U64, machine.data.places), 100)

    def work() -> None:
        machine.load()
        assert machine.library.replay(way, 3, early, BLOCKS, THREADS, *given) == 0
        machine.data.result()

    return profiled(machine, work, launches=launches)


def machine_code(machine: Machine) -> dict[str, Any]:
    """Code of which there is no PTX, launched 12 times; with a second argument, into a graph."""
    unmarked: list[Any] = []

    def work() -> None:
        machine.load(b"\x7fELF" + bytes(60))
        for _ in range(12):
            machine.launch()
        unmarked.extend([active()])

    told = profiled(machine, work)
    return {**told, "unmarked": [asdict(one) for one in unmarked[0].run.unmarked]}


def jit(machine: Machine) -> dict[str, Any]:
    """A program that has a compiler of its own name make a cubin, as DeepGEMM does, and loads what it wrote."""
    source, compiler, made, arguments = sys.argv[3], sys.argv[4], Path(sys.argv[5]), sys.argv[6:]

    def work() -> None:
        subprocess.run([compiler, source, "-cubin", "-o", str(made), *arguments], check=True)
        machine.load(made.read_bytes())
        machine.launch()

    return profiled(machine, work)


def fat_binary(machine: Machine) -> dict[str, Any]:
    """The image that nvcc made, in the form in which programs hand it over: a wrapper with its address."""
    image = Path(sys.argv[3]).read_bytes()
    kept = ctypes.create_string_buffer(image, len(image))
    wrapper = ctypes.create_string_buffer(24)
    ctypes.c_uint32.from_buffer(wrapper).value = 0x466243B1
    ctypes.c_uint64.from_buffer(wrapper, 8).value = ctypes.addressof(kept)

    def work() -> None:
        machine.load(wrapper.raw, whole=True)
        machine.launch()

    return profiled(machine, work)


def warm(machine: Machine) -> dict[str, Any]:
    """The code of the given libraries was loaded and run before the profile begins."""
    kept = [ctypes.CDLL(path) for path in sys.argv[3:]]
    machine.load()
    machine.launch()

    def work() -> None:
        machine.launch()
        machine.launch()

    return {**profiled(machine, work), "kept": len(kept)}


def closed_kernels(machine: Machine) -> dict[str, Any]:
    """Kernels that are not asked for are not shown to Python again."""
    asked = []

    def work() -> None:
        machine.load()
        machine.launch()
        hooks, _ = hook_file.call_hooks()
        assert hooks is not None
        before = hooks.find
        hooks.find = lambda handle: asked.append(handle) or before(handle)
        for _ in range(5):
            machine.launch()

    return {**profiled(machine, work, kernels="other"), "asked": len(asked)}


def many_threads(machine: Machine) -> dict[str, Any]:
    """Threads of C++ and of Python launch at the same time."""
    lock = threading.Lock()
    plain = machine.gpu.launch
    machine.gpu.launch = lambda *given: _locked(lock, plain, *given)

    def launch(thread: bool) -> None:
        for _ in range(4):
            call = machine.library.launch_in_thread if thread else machine.library.launch
            assert call(b"plain", BLOCKS, THREADS, U64(7), *map(U64, machine.data.places), 100) == 0

    def work() -> None:
        hooks, _ = hook_file.call_hooks()
        assert hooks is not None
        hooks.set_patience(30000, 60000)  # a busy machine may take long to give Python's lock to another thread
        machine.load()
        workers = [threading.Thread(target=launch, args=(number % 2 == 0,)) for number in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    return profiled(machine, work, launches=None)


def _locked(lock: Any, call: Callable[..., Any], *given: Any) -> None:
    with lock:
        call(*given)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        fake = fake_driver(patch)
        result = globals()[sys.argv[1]](Machine(fake, sys.argv[2]))
        print(json.dumps(result))
