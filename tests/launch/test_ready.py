"""Launches whose memory is prepared: who may take them, what they cost, and how they come home."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

from tests.support.counting_device import KERNEL, STREAM, Counting, Scene
from warplens.driver import libcuda
from warplens.launch.buffers import Buffers
from warplens.launch.ready import MOST_READY
from warplens.launch.variant import Variant
from warplens.launch.woven import WovenKernel, WovenLaunch
from warplens.options import Options
from warplens.record.layout import HEADER, HEADER_BYTES, TRACK_MAGIC, TrackState


@pytest.fixture(name="gpu")
def _gpu(monkeypatch: pytest.MonkeyPatch) -> Counting:
    gpu = Counting()
    monkeypatch.setattr(libcuda, "driver", lambda: gpu)
    return gpu


def write(gpu: Counting, launch: WovenLaunch, slots: int, mark: int) -> None:
    """What the device would have written: `slots` slots in each track, all with the value `mark`."""
    stride = 1 << launch.shift
    for track in range(launch.tracks):
        header = np.zeros(1, HEADER)
        header["magic"], header["state"], header["written"] = TRACK_MAGIC, TrackState.EXITED, slots
        header["warp"] = track
        gpu.space.write(launch.address + track * stride, header.view(np.uint8))
        if slots:
            gpu.space.write(launch.address + track * stride + HEADER_BYTES, np.full(slots, mark, np.uint64))


def test_prepared_launches_have_memory_of_their_own_and_count_as_recorded(gpu: Counting) -> None:
    scene = Scene()
    launches = [scene.lend()]
    asked = len(gpu.asked)
    while (launch := scene.take()) is not None:
        launches.append(launch)
    assert len(launches) == 1 + MOST_READY
    places = [(one.address, one.address + one.size) for one in launches]
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(places)), "side by side"
    assert scene.variant.recorded == scene.variant.launches == len(launches)
    assert len(gpu.asked) == asked, "nothing is asked of the driver's memory in the steady state"
    assert all(one.stream == STREAM for one in launches)
    scene.buffers.release()


def test_a_front_end_that_asks_each_time_gets_what_is_at_hand(gpu: Counting) -> None:
    scene = Scene()
    launches = [scene.lend()]
    (engine,) = scene.buffers.engines()
    in_use = engine.in_use
    launches += [scene.lend() for _ in range(MOST_READY)]
    assert engine.in_use == in_use, "nothing was lent besides, and nothing given back"
    assert len({one.address for one in launches}) == 1 + MOST_READY
    assert [one for one, _ in scene.run.launches_so_far()] == launches
    scene.lend()
    scene.variant.most_written = 1000
    scene.lend()
    assert engine.in_use > 2 * in_use, "a launch wrote more than those before: the next ones may need more"
    gpu.current = 2
    assert scene.lend().engine is not engine
    scene.buffers.release()


def test_nothing_is_prepared_before_the_size_of_tracks_is_known(gpu: Counting) -> None:
    scene = Scene()
    scene.options = Options()
    scene.buffers = Buffers(scene.run, scene.options, scene.variants)
    scene.lend()
    assert scene.variant.ready is None
    scene.variant.most_written = 8
    scene.lend()
    assert scene.variant.ready is not None


def test_a_prepared_launch_is_only_for_its_kernel_grid_context_and_never_for_a_graph(gpu: Counting) -> None:
    scene = Scene()
    scene.lend()
    other = WovenKernel(**{**vars(KERNEL), "name": "other"})
    assert scene.take(kernel=other) is None
    assert scene.take(grid=(8, 1, 1)) is None
    gpu.current = 2
    assert scene.take() is None
    gpu.current = 1
    graph = gpu.graphs.begin(STREAM)
    assert scene.take() is None
    gpu.graphs.end(graph)
    assert scene.variant.recorded == 1, "what was not taken is not counted"
    assert scene.take() is not None


def test_the_quota_and_the_window_hold_for_prepared_launches(gpu: Counting) -> None:
    scene = Scene(launches=3, skip=0)
    scene.lend()
    found = [scene.take() for _ in range(5)]
    assert [one is not None for one in found] == [True, True, False, False, False]
    scene = Scene()
    scene.lend()
    scene.variants.wanted = lambda: False
    assert scene.take() is None
    scene.variants.wanted = lambda: True
    scene.variant.closed = True
    assert scene.take() is None


def test_prepared_memory_goes_back_before_a_launch_is_refused(gpu: Counting) -> None:
    size = 8 << 9
    gpu.size = (1 + MOST_READY) * size + (1 << 9)
    scene = Scene()
    first = scene.lend()
    assert first.size == size
    large = WovenKernel(**{**vars(KERNEL), "name": "large"})
    launch = scene.buffers.lend(large, Variant("large", dict), (16, 1, 1), STREAM)
    assert launch is not None
    assert scene.variant.ready is None
    assert scene.buffers.engine().in_use == first.size + launch.size


def test_launches_side_by_side_come_home_with_one_copy(gpu: Counting) -> None:
    scene = Scene()
    scene.variant.most_written = 4
    launches = [scene.lend()]
    while (launch := scene.take()) is not None:
        launches.append(launch)
    for number, launch in enumerate(launches):
        with launch:
            # One of them writes more than any before it, and one nothing.
            write(gpu, launch, {5: 9, 6: 0}.get(number, 4), number + 1)
    found, problems = scene.run.collect()
    assert not problems
    assert len(found) == len(launches) == 1 + MOST_READY
    assert len(gpu.copies) <= 3, "one for all, and one for the launch that wrote more"
    for number, (_, launch) in enumerate(found):
        slots = {5: 9, 6: 0}.get(number, 4)
        rows = launch.raw.reshape(launch.tracks, launch.stride)
        assert launch.tracks == 8
        assert launch.extra["most_written"] == launch.capacity == slots
        np.testing.assert_array_equal(
            rows[:, HEADER_BYTES : HEADER_BYTES + 8 * slots].copy().view(np.uint64), number + 1
        )
        headers = np.ndarray(launch.tracks, HEADER, launch.raw, strides=(launch.stride,))
        assert headers["warp"].tolist() == list(range(8))
    assert scene.variant.most_written == 9
    assert scene.buffers.engine().in_use == 0
    scene.buffers.release()


def test_the_driver_s_refusal_after_a_launch_is_a_problem_of_the_profile(gpu: Counting) -> None:
    """The program finds out by itself that its kernel failed; a launch must not raise an error of ours."""
    scene = Scene()
    launch = scene.lend()
    gpu.refuses = True
    with launch:
        pass
    gpu.refuses = False
    found, problems = scene.run.collect()
    assert not found
    assert "an illegal memory access was encountered" in problems[0]


def test_threads_share_prepared_launches_and_none_is_taken_twice(gpu: Counting) -> None:
    scene = Scene()
    taken: list[WovenLaunch] = [scene.lend()]
    lock = threading.Lock()

    def work() -> None:
        for _ in range(MOST_READY):
            launch = scene.take()
            if launch is not None:
                with lock:
                    taken.append(launch)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.address for one in taken}) == len(taken) == 1 + MOST_READY
    assert scene.variant.recorded == len(taken)
