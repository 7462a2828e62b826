"""The launch path: see each launch of a woven kernel as Triton makes it, and give it a buffer."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from warplens.errors import WarplensError
from warplens.frontends.triton import torch_memory
from warplens.frontends.triton.stages import METADATA, REMARKS
from warplens.frontends.wrap import wrap
from warplens.launch.buffers import Buffers
from warplens.launch.woven import WovenKernel
from warplens.session import Session
from warplens.weave.weaver import Woven
from warplens.weave.weaving import Selection


def woven_kernel(metadata: Any) -> WovenKernel | None:
    """What a compiled kernel's metadata says about its weaving; None where it has none."""
    document = getattr(metadata, METADATA, None)
    if not document:
        return None
    select: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in document["select"].items()}
    return WovenKernel.of(
        Woven.restore("", document),
        metadata.name,
        threads=32 * metadata.num_warps,
        name=metadata.name,
        ctas=getattr(metadata, "num_ctas", 1),
        select=Selection(**select),
        shared_slots=document.get("shared_slots", 0),
        shared_bytes=document.get("shared_bytes", 0),
        resources={**document.get("resources", {}), "shared_bytes_kernel": getattr(metadata, "shared", 0)},
        auto="auto" in document,
    )


class Pointer(int):
    """An address that Triton's launchers accept, as a number or by `data_ptr`."""

    def data_ptr(self) -> int:
        return int(self)


def pass_on(session: Session, kernel: str, remarks: Mapping[str, Any]) -> None:
    """Give the compiler's remarks about a kernel to the session."""
    session.run.coverage.add(remarks.get("matched", ()), remarks.get("lines", {}))
    for text in remarks["notes"]:
        session.note(kernel, text)


_thread = threading.local()


@contextmanager
def tuning() -> Iterator[None]:
    """Launches of this thread inside the block are an autotuner's, hundreds per candidate: none is recorded."""
    before, _thread.tuning = is_tuning(), True
    try:
        yield
    finally:
        _thread.tuning = before


def is_tuning() -> bool:
    return getattr(_thread, "tuning", False)


class LaunchHook:
    """Patches the driver's launcher class and Triton's profile allocator while a profile runs."""

    def __init__(self, session: Session) -> None:
        self.session, self.buffers = session, Buffers(session.run, session.options, torch_memory)
        self._local = threading.local()
        self._undo: list[Callable[[], None]] = []
        self._watched: list[Any] = []
        self._remarked: dict[int, Mapping[str, Any]] = {}

    def install(self) -> None:
        from triton.compiler.compiler import CompiledKernel
        from triton.runtime import _allocation, driver

        _allocation.set_profile_allocator(self._allocate)
        self._undo.append(lambda: _allocation.set_profile_allocator(None))

        def init_handles(original: Callable[..., None], kernel: Any) -> None:
            self._watch(driver.active.launcher_cls)
            original(kernel)

        self._undo.append(wrap(CompiledKernel, "_init_handles", init_handles))
        # Asking for a driver that is not active yet would start CUDA: that is for the program to do, when it launches.
        if driver._active is not None:
            self._watch(driver.active.launcher_cls)
        self._leave_out_tuning()

    def _watch(self, launcher: Any) -> None:
        """See every launch that goes through this class of launchers."""
        if launcher in self._watched:
            return
        self._watched.append(launcher)

        def init(original: Callable[..., None], made: Any, source: Any, metadata: Any) -> None:
            original(made, source, metadata)
            made.warplens, made.warplens_name = woven_kernel(metadata), metadata.name
            made.warplens_remarks = getattr(metadata, REMARKS, None)

        def call(original: Callable[..., Any], made: Any, x: int, y: int, z: int, *arguments: Any) -> Any:
            if hasattr(made, "warplens_name") and not is_tuning():
                self.session.saw(made.warplens_name)
                self._remark(made.warplens_name, made.warplens_remarks)
            self._local.launch = (getattr(made, "warplens", None), (x, y, z))
            try:
                return original(made, x, y, z, *arguments)
            finally:
                self._local.launch = None

        self._undo.append(lambda: self._watched.remove(launcher))
        self._undo += [wrap(launcher, "__init__", init), wrap(launcher, "__call__", call)]

    def _remark(self, kernel: str, remarks: Mapping[str, Any] | None) -> None:
        """Pass on what the compiler had to say, which may have been in another process: it is kept with the kernel."""
        if remarks and id(remarks) not in self._remarked:
            self._remarked[id(remarks)] = remarks
            pass_on(self.session, kernel, remarks)

    def _leave_out_tuning(self) -> None:
        """Only the launch that the user asked for is recorded, none of those that Triton's autotuner makes."""
        from triton.runtime.autotuner import Autotuner

        def bench(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            with tuning():
                return original(*arguments, **options)

        self._undo.append(wrap(Autotuner, "_bench", bench))

    def remove(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _allocate(self, size: int, alignment: int, stream: int | None) -> Pointer | None:
        """Triton's profile allocator: called in the launching thread just before the launch."""
        kernel, (x, y, z) = getattr(self._local, "launch", None) or (None, (0, 0, 0))
        if kernel is None:
            raise WarplensError(
                "a kernel asks for profile scratch that warplens did not weave: it was compiled by another profiler, "
                "or outside this process's profiles; compile it again inside wl.profile"
            )
        if is_tuning():
            return None
        if not self.session.wants(kernel.name):
            return None
        if torch_memory.capturing():
            warnings.warn(
                f"warplens: kernel {kernel.name} was captured into a CUDA graph; its replays are not recorded. "
                "Profile the call that is not captured.",
                stacklevel=2,
            )
            return None
        lent = self.buffers.lend(kernel, (x * kernel.ctas, y, z), stream)
        if not lent:
            return None
        self.session.timings.start()
        return Pointer(lent)
