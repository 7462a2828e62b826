"""Times of every kernel that the process runs, including those of libraries, measured by torch's profiler (CUPTI)."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from warplens.frontends.import_hook import when_imported
from warplens.frontends.wrap import wrap

_LIBRARIES = ("torch", "cupy", "numba.cuda", "cuda.core", "cutlass.cutlass_dsl")
_NOT_KERNELS = ("Memcpy", "Memset")


class KernelTimes:
    """Kernel times by name, from the import of the first library that launches kernels until `stop`.

    `problem` says why times are missing; it is empty if they are complete.
    """

    def __init__(self) -> None:
        self.times: dict[str, list[int]] = {}
        self.problem = "the program imported no library that launches GPU kernels"
        self._session: Any = None
        self._undo: list[Callable[[], None]] = []

    @property
    def complete(self) -> bool:
        return not self.problem

    def start(self) -> None:
        if find_spec("torch") is None:
            self.problem = "torch is needed to time kernels: pip install torch"
            return
        self._undo.append(when_imported(dict.fromkeys(_LIBRARIES, self._begin)))

    def stop(self) -> None:
        while self._undo:
            self._undo.pop()()
        self._end()

    def _begin(self, library: str) -> None:
        if self._session is not None:
            return
        import torch

        if not torch.cuda.device_count():
            self.problem = "torch found no GPU"
            return
        from torch.autograd import profiler

        self._session = profiler.profile(use_cpu=False, use_device="cuda", use_kineto=True)
        self._session.__enter__()
        self.problem = ""
        self._yield_to_program(profiler.profile)

    def _yield_to_program(self, profile: Any) -> None:
        """Stop timing when the program starts torch's profiler itself: only one session can run at a time."""

        def prepare(original: Callable[..., Any], session: Any) -> Any:
            if self._session is not None and session is not self._session:
                self._end()
                self.problem = (
                    "the program used torch.profiler itself; kernels launched after that were counted but not timed"
                )
            return original(session)

        self._undo.append(wrap(profile, "_prepare_trace", prepare))

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        session.__exit__(None, None, None)
        for event in session.kineto_results.events():
            name = event.name()
            if event.device_type().name != "CUDA" or event.is_user_annotation() or name.startswith(_NOT_KERNELS):
                continue
            self.times.setdefault(name, []).append(int(event.duration_ns()))
