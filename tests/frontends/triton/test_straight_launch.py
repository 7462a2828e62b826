"""Launches that go to Triton's function in C: they pass on what Triton's own launcher would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton")

from triton.backends.nvidia.driver import CudaLauncher
from triton.runtime import _allocation, driver

from warplens.frontends.triton.straight_launch import straight_launch

Passed = list[tuple[Any, ...]]
LAUNCH = (8, 4, 1, 1234, 99, (4, 1, 0), None, None, None, "x", 7, 2.5)
SCRATCH = 4096


def launcher(c_launch: Callable[..., None], **settings: Any) -> Any:
    """A launcher as Triton makes it, in front of another function than that in C."""
    made = CudaLauncher.__new__(CudaLauncher)
    vars(made).update(
        launch=c_launch, num_ctas=1, launch_cooperative_grid=False, launch_pdl=True, gsan_enabled=False,
        global_scratch_size=0, global_scratch_align=1, profile_scratch_size=0, profile_scratch_align=128,
        arg_annotations=("a",), kernel_signature=b"s",
    )  # fmt: skip
    vars(made).update(settings)
    return made


@pytest.fixture(autouse=True)
def _allocator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(driver, "_active", SimpleNamespace())
    before = _allocation._profile_allocator.get()
    _allocation._profile_allocator.set(lambda size, alignment, stream: SCRATCH)
    yield
    _allocation._profile_allocator.set(before)


@pytest.mark.parametrize(("size", "scratch"), [(0, None), (128, SCRATCH)])
@pytest.mark.parametrize("cooperative", [False, True])
def test_a_straight_launch_passes_on_what_triton_s_launcher_does(
    size: int, scratch: int | None, cooperative: bool
) -> None:
    passed: Passed = []
    one = launcher(lambda *given: passed.append(given), profile_scratch_size=size, launch_cooperative_grid=cooperative)
    straight = straight_launch(one, scratch)
    assert straight is not None
    assert not passed, "trying it launches nothing"
    one(*LAUNCH)
    straight(scratch, *LAUNCH)
    assert passed[0] == passed[1]
    straight(None if scratch is None else 8192, *LAUNCH)
    assert passed[2] == tuple(8192 if scratch is not None and value == scratch else value for value in passed[0])


def test_a_kernel_that_takes_other_scratch_memory_is_launched_by_triton() -> None:
    allocated: list[int] = []
    before = _allocation._allocator.get()
    _allocation._allocator.set(lambda size, alignment, stream: allocated.append(size) or 1 << 30)
    try:
        assert straight_launch(launcher(lambda *given: None, global_scratch_size=64)) is None
        assert not allocated
    finally:
        _allocation._allocator.set(before)


def test_a_launcher_that_is_not_triton_s_own_stays_in_front() -> None:
    class Counting(CudaLauncher):  # type: ignore[misc]
        def __call__(self, *given: Any) -> None:
            super().__call__(*given)

    counting = Counting.__new__(Counting)
    vars(counting).update(vars(launcher(lambda *given: None)))
    assert straight_launch(counting) is None
    assert straight_launch(lambda *given: None) is None


def test_a_launcher_of_an_unknown_kind_is_launched_by_itself() -> None:
    incomplete = CudaLauncher.__new__(CudaLauncher)
    assert straight_launch(incomplete) is None
