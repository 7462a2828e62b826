"""How long every kernel of the process ran, libraries' included: CUPTI's times by way of torch's profiler."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from warplens.frontends.import_hook import when_imported
from warplens.frontends.wrap import wrap

_LIBRARIES = ("torch", "cupy", "numba.cuda", "cuda.core", "cutlass.cutlass_dsl")
_NOT_KERNELS = ("Memcpy", "Memset")


class KernelTimes:
    """Times by kernel, from the import of a library that launches kernels to `stop`. `problem` says what is missing."""

    def __init__(self) -> None:
        self.times: dict[str, list[int]] = {}
        self.problem = "the program imported nothing that launches kernels on a GPU"
        self._session: Any = None
        self._undo: list[Callable[[], None]] = []

    @property
    def complete(self) -> bool:
        return not self.problem

    def start(self) -> None:
        if find_spec("torch") is None:
            self.problem = "kernel times need torch (its profiler): pip install torch"
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
            self.problem = "torch sees no GPU here"
            return
        from torch.autograd import profiler

        self._session = profiler.profile(use_cpu=False, use_device="cuda", use_kineto=True)
        self._session.__enter__()
        self.problem = ""
        self._make_way(profiler.profile)

    def _make_way(self, profile: Any) -> None:
        """Only one session of torch's profiler can run, and the program's own comes first."""

        def prepare(original: Callable[..., Any], session: Any) -> Any:
            if self._session is not None and session is not self._session:
                self._end()
                self.problem = "from where the program used torch.profiler itself, kernels were counted but not timed"
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
