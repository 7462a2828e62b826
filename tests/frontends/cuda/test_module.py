"""The Python half of the CUDA front end on a driver that keeps its device memory in the host's."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pytest

import warplens as wl
import warplens.cuda as wlcu
from tests.support.contexts import Contexts
from tests.support.simulated_driver import in_place
from warplens.driver.kernel_arguments import dim3, pack, stream_handle
from warplens.errors import UsageError, WarplensError
from warplens.frontends.cuda import measured_cost
from warplens.frontends.cuda import module as module_file
from warplens.record.capture import Device
from warplens.record.launch_buffer import BUFFER, BUFFER_BYTES, STORES
from warplens.record.layout import HEADER, HEADER_BYTES, TRACK_MAGIC, Kind, TrackState, word0
from warplens.record.name_table import NAME_MAGIC, Names, region_id

NAME = struct.pack("<QIIHH", NAME_MAGIC, region_id("work"), 3, 5, 5) + b"work\0k.cu\0"


class FakeDriver(Contexts):
    """Remembers what was asked of it; `kernel` stands for the device code of the next launches."""

    def __init__(self) -> None:
        self.memory: dict[int, npt.NDArray[np.uint8]] = {}
        self.freed: list[int] = []
        self.waits = 0
        self.launches: list[list[bytes]] = []
        self.kernel: Callable[[int, Sequence[int], Sequence[int]], None] = records(2)

    def device(self) -> Device:
        return Device(name="fake", index=self.device_index(), sm_count=4, capability="9.0")

    def allocate(self, size: int) -> int:
        array = np.full(size, 0xA5, np.uint8)
        self.memory[array.ctypes.data] = array
        return array.ctypes.data

    def free(self, address: int) -> None:
        self.freed.append(address)
        del self.memory[address]

    def clear(self, address: int, size: int, stream: int) -> None:
        ctypes.memset(address, 0, size)

    def upload(self, address: int, data: bytes, stream: int) -> None:
        ctypes.memmove(address, data, len(data))

    def download(self, address: int, size: int) -> bytes:
        return ctypes.string_at(address, size)

    def download_rows(self, address: int, pitch: int, width: int, rows: int, out_pitch: int) -> npt.NDArray[np.uint8]:
        out = np.zeros((rows, out_pitch), np.uint8)
        for row in range(rows):
            out[row, :width] = np.frombuffer(self.download(address + row * pitch, width), np.uint8)
        return out.reshape(-1)

    def synchronize(self) -> None:
        self.waits += 1

    def stream(self) -> int:
        return 77

    def synchronize_stream(self, stream: int) -> None:
        assert stream == 77

    def destroy_stream(self, stream: int) -> None:
        assert stream == 77

    def load(self, image: bytes) -> int:
        return 1

    def function(self, module: int, name: str) -> int | None:
        return 2

    def resources(self, function: int) -> dict[str, int]:
        return {"shared_bytes": 1024, "local_bytes": 0, "registers": 40}

    def parameter_sizes(self, function: int) -> list[int]:
        return [8, 4, 8]

    def launch(
        self,
        function: int,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[bytes],
        shared: int,
        stream: int,
    ) -> None:
        self.launches.append(list(arguments))
        address = int.from_bytes(arguments[-1], "little")
        if address:
            self.kernel(address, grid, block)


def records(
    count: int, *, mode: int = 1, refused: int = 0, state: TrackState = TrackState.EXITED, store: int = 0
) -> Callable[..., None]:
    """Device code that leaves `count` records in every track."""

    def run(address: int, grid: Sequence[int], block: Sequence[int]) -> None:
        head = np.frombuffer((ctypes.c_char * BUFFER_BYTES).from_address(address), BUFFER)[0]
        head["mode"], head["refused"], head["store"] = mode, refused, store
        if head["names"]:
            ctypes.memmove(int(head["names"]), b"\0" * 64 + NAME, 64 + len(NAME))
            head["names_size"] = 64 + len(NAME)
        capacity, stride, tracks, per_block = (
            int(head[name]) for name in ("capacity", "stride", "tracks", "per_block")
        )
        for track in range(tracks):
            at = address + BUFFER_BYTES + track * stride
            row = np.frombuffer((ctypes.c_char * stride).from_address(at), np.uint8)
            header = row[:HEADER_BYTES].view(HEADER)[0]
            header["magic"], header["block"], header["warp"] = TRACK_MAGIC, track // per_block, track % per_block
            header["start_clock"], header["start_ns"] = 1000, 1_000_000
            header["exit_clock"], header["exit_ns"] = 3000, 1_001_000
            header["written"], header["state"] = count if state == TrackState.EXITED else 0, state
            slots = row[HEADER_BYTES:].view("<u4").reshape(-1, 2)
            for i in range(count):
                kind = Kind.END if i % 2 else Kind.BEGIN
                slots[min(i, capacity)] = word0(kind, region_id("work")), 1000 + 10 * i

    return run


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    fake = in_place(monkeypatch, FakeDriver())
    yield fake
    assert not fake.memory, "every buffer is freed"


class FakeModule(module_file.Module):
    """A module that is not compiled."""

    def __init__(self) -> None:
        super().__init__("", "k.cu", "sm_90a", ())
        self.built: list[str] = []

    def build(self, variant: str) -> module_file._LoadedVariant:
        self.built.append(variant)
        return module_file._LoadedVariant(1, Names({region_id("work"): "work"}, {}), ["k"])


def test_a_launch_inside_a_profile_becomes_a_trace(fake: FakeDriver) -> None:
    module = FakeModule()
    with wl.profile() as prof:
        module["k"].launch(3, (64, 1), np.uint64(5), 7, shared=512)
        module["k"][3, 64](np.uint64(5), 7)
        assert fake.waits == 0, "no launch waits for the GPU"
    assert len(prof.trace) == 2 * 3 * 2
    assert prof.trace.regions == ["work"]
    assert prof.trace.meta.losses.clean
    assert prof.device.name == "fake"
    first, second = (info.extra for info in prof.trace.meta.launches)
    assert (first["registers"], first["shared_bytes"], second["shared_bytes"]) == (40, 1536, 1024)
    assert fake.launches[0][:2] == [struct.pack("<Q", 5), struct.pack("<i", 7)]
    assert set(module.built) == {"stop"}


def test_a_launch_on_another_gpu_says_so(fake: FakeDriver) -> None:
    module = FakeModule()
    with wl.profile() as prof:
        for fake.current in (1, 2):
            module["k"].launch(3, 64, np.uint64(5), 7)
        fake.current = 1
    assert [info.device for info in prof.trace.meta.launches] == [0, 1]


def test_outside_a_profile_and_switched_off_the_unmarked_build_runs(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = FakeModule()
    module["k"].launch(3, 64, np.uint64(5), 7)
    monkeypatch.setenv("WARPLENS", "0")
    with wl.profile():
        module["k"].launch(3, 64, np.uint64(5), 7)
        assert wlcu.buffer(1, 32) == 0
    assert set(module.built) == {"off"}
    assert [arguments[-1] for arguments in fake.launches] == [bytes(8)] * 2


def test_a_launch_into_a_graph_takes_no_memory_and_runs_unmarked(
    fake: FakeDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    module = FakeModule()
    graph = fake.graphs.begin(9)
    with wl.profile() as prof:
        module["k"].launch(3, 64, np.uint64(5), 7, stream=9)
        assert not fake.memory, "the driver refuses to allocate while a stream is captured"
        fake.graphs.end(graph)
        module["k"].launch(3, 64, np.uint64(5), 7)
    assert "k: runs unmarked: it is captured into a CUDA graph" in capsys.readouterr().err
    assert len(prof.trace.meta.launches) == 1
    assert module.built == ["off", "stop", "stop"]


def test_kernels_and_every_choose_launches_and_what_is_not_there_is_refused(fake: FakeDriver) -> None:
    module = FakeModule()
    with wl.profile(every=2) as prof:
        for _ in range(5):
            module["k"].launch(3, 64, np.uint64(5), 7)
    assert len(prof.trace.meta.launches) == 3
    module = FakeModule()
    with pytest.raises(WarplensError, match="no kernel was profiled"), wl.profile(kernels="gemm"):
        module["k"].launch(3, 64, np.uint64(5), 7)
        assert wlcu.buffer(1, 32, kernel="softmax") == 0
    assert module.built[-1] == "off"
    with pytest.raises(UsageError, match=r"warps=\[0\] is not there for CUDA kernels"), wl.profile(warps=[0]):
        module["k"].launch(3, 64, np.uint64(5), 7)


def test_a_lent_buffer_finds_its_names_on_the_device(fake: FakeDriver) -> None:
    with wl.profile() as prof:
        address = wlcu.buffer((2, 2), 96, kernel="lent")
        assert isinstance(address, np.uint64)
        fake.kernel(int(address), (2, 2, 1), (96, 1, 1))
    assert (prof.trace.kernels, prof.trace.regions, len(prof.trace)) == (["lent"], ["work"], 12)


def test_a_lent_buffer_carries_the_calibration_of_the_marks_that_filled_it(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`warplens nvcc` weaves marks that the host knows nothing of until the launch is over."""
    for store, cost in (("direct", 7.0), ("spread", 1.0)):
        known = {"region_cycles": cost}
        monkeypatch.setitem(measured_cost.calibrations, (fake.device().name, store, "stop"), known)
    for store, cost in (("direct", 7.0), ("spread", 1.0), ("defer", None)):
        fake.kernel = records(2, store=STORES.index(store))
        with wl.profile() as prof:
            fake.kernel(int(wlcu.buffer(1, 32, kernel="lent")), (1, 1, 1), (32, 1, 1))
        launch = prof.trace.meta.launches[0]
        assert launch.cost.get("region_cycles") == cost
        assert launch.extra.get("store", "direct") == store


@pytest.mark.parametrize("mode", ["stop", "ring"])
def test_loss_is_exact_and_the_mode_is_the_kernels_own(fake: FakeDriver, mode: str) -> None:
    fake.kernel = records(50, mode=1 if mode == "stop" else 2)
    with wl.profile(records_per_warp=20, full=mode) as prof:
        FakeModule()["k"].launch(1, 32, np.uint64(0), 0)
    capacity = 20 if mode == "stop" else 32
    losses = prof.trace.meta.losses
    assert (losses.records_written, losses.records_lost) == (50, 50 - capacity)
    assert prof.trace.meta.launches[0].extra["records_needed"] == 50


def test_only_what_was_written_is_copied_unless_a_warp_never_ended(fake: FakeDriver) -> None:
    profile = wl.profile(records_per_warp=1000)
    with profile:
        FakeModule()["k"].launch(1, 32, np.uint64(0), 0)
        launch = profile.run._pending.pop()[0].collect()
        assert (launch.capacity, launch.stride) == (2, 256)
        fake.kernel = records(2, state=TrackState.RUNNING)
        FakeModule()["k"].launch(1, 32, np.uint64(0), 0)
        assert profile.run._pending[0][0].collect().capacity == 1000
        profile.run._pending.clear()
        fake.kernel = records(2)
        FakeModule()["k"].launch(1, 32, np.uint64(0), 0)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (lambda *_: None, "recorded nothing: no warp reached a wl::Kernel"),
        (records(2, refused=1), "more warps than its buffer has tracks"),
        (records(0, refused=2), "woven for blocks of whole warps"),
        (records(0, refused=3), "for which its buffer has no room"),
    ],
)
def test_a_launch_that_left_nothing_or_too_much_says_so(
    fake: FakeDriver, capsys: pytest.CaptureFixture[str], kernel: Callable[..., None], message: str
) -> None:
    fake.kernel = kernel
    profile = wl.profile()
    with profile:
        FakeModule()["k"].launch(1, 32, np.uint64(0), 0)
        with pytest.raises(WarplensError, match=message):
            profile.run._pending.pop()[0].collect()
        fake.kernel = records(2)
        FakeModule()["k"].launch(1, 32, np.uint64(0), 0)


def test_arguments_are_packed_by_the_kernels_own_sizes() -> None:
    class Tensor:
        def data_ptr(self) -> int:
            return 99

    packed = pack("k", (Tensor(), 1.5, 1.5, -1, 2**32 - 1, np.float16(1), True), (8, 4, 8, 4, 4, 2, 1))
    assert packed[0] == struct.pack("<Q", 99)
    assert packed[1:3] == [struct.pack("<f", 1.5), struct.pack("<d", 1.5)]
    assert packed[3:5] == [b"\xff" * 4] * 2
    assert packed[5:] == [np.float16(1).tobytes(), b"\x01"]
    for value, size in ((2**32, 4), (1.5, 2), ("text", 8), (np.float64(1), 4)):
        with pytest.raises(UsageError, match=f"argument 0: .* {size} bytes"):
            pack("k", (value,), (size,))
    with pytest.raises(UsageError, match=r"takes 1 arguments before its wl::Buffer, 2 were given"):
        pack("k", (1, 2, 0), (4, 8))


def test_a_tensor_in_the_hosts_memory_is_refused_before_the_kernel_reads_it() -> None:
    class Tensor:
        is_cuda, pinned = False, False

        def is_pinned(self) -> bool:
            return self.pinned

        def data_ptr(self) -> int:
            return 99

    tensor = Tensor()
    with pytest.raises(UsageError, match=r"'k', argument 1: the tensor is in the host's memory.*\.cuda\(\)"):
        pack("k", (1, tensor, 0), (4, 8, 8))
    tensor.pinned = True
    assert pack("k", (1, tensor, 0), (4, 8, 8))[1] == struct.pack("<Q", 99), "pinned memory is the GPU's too"


def test_grids_and_streams_are_taken_in_every_common_form() -> None:
    assert (dim3(4, "grid"), dim3((4, 2), "grid"), dim3([1, 2, 3], "grid")) == ((4, 1, 1), (4, 2, 1), (1, 2, 3))
    for bad in (0, (), (1, 2, 3, 4), (1, -1)):
        with pytest.raises(UsageError, match="grid"):
            dim3(bad, "grid")

    class Torch:
        cuda_stream = 5

    class Core:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 6

    assert [stream_handle(s) for s in (3, Torch(), Core())] == [3, 5, 6]
    with pytest.raises(UsageError, match="stream"):
        stream_handle("default")
