"""The calls that C++ code makes to the CUDA driver, as Python sees and answers them (native/driver_hooks)."""

from __future__ import annotations

import atexit
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_char_p, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from warplens.driver.kernel_arguments import Shape
from warplens.native.driver_hooks import load_hooks
from warplens.threads import BackgroundThread

DRIVER = "libcuda.so.1"
LEFT_ALONE = (
    "/_ctypes.", "/libffi", "/cupy", "/cuda/bindings/", "/cuda/core/", "/triton/", "__triton_launcher",
    "/cuda_utils.", "/libtorch_python.", "/numba/",
)  # fmt: skip
"""Parts of the names of libraries whose launches other front ends follow, and of our own (ctypes)."""


class CallKind(IntEnum):
    """What a call is about."""

    LAUNCH = 0
    CAPTURE_BEGAN = 1
    GRAPH_MADE = 2
    GRAPH_LAUNCH = 3
    CONTEXT_ENDS = 4
    GRAPH_ENDS = 5
    REFILL = 6
    """No call: a launch like this one was made without Python, and memory for further ones runs out."""


class HandleKind(IntEnum):
    UNKNOWN = 0
    MODULE = 1
    LIBRARY = 2
    FUNCTION = 3
    KERNEL = 4


class DriverCall(ctypes.Structure):
    """One call, as `wl_call` in hooks.h."""

    _fields_ = (
        ("kind", c_uint32), ("slot", c_uint32), ("function", c_uint64), ("stream", c_uint64), ("graph", c_uint64),
        ("context", c_uint64), ("grid", c_uint32 * 3), ("block", c_uint32 * 3), ("shared", c_uint32),
        ("status", c_int32), ("done", c_int32), ("given_stream", c_uint64), ("params", c_void_p), ("extra", c_void_p),
        ("config", c_void_p),
    )  # fmt: skip

    @property
    def shape(self) -> Shape:
        """How the kernel is launched."""
        (x, y, z), (u, v, w) = self.grid, self.block
        return Shape((x, y, z), (u, v, w), int(self.shared), int(self.stream))


class _Origin(ctypes.Structure):
    _fields_ = (
        ("kind", c_uint32), ("parent", c_uint64), ("name", c_char_p), ("image", c_void_p), ("size", c_uint64),
    )  # fmt: skip


@dataclass(frozen=True)
class HandleOrigin:
    """Where a function or kernel is from: its symbol, the module or library, and where the code of that lies."""

    kind: HandleKind
    symbol: str
    home: int
    image: int
    size: int

    def code(self) -> bytes:
        """The bytes that were loaded; none where that was not seen."""
        return ctypes.string_at(self.image, self.size) if self.image and self.size else b""


Answer = Callable[[DriverCall], None]
_LISTENER = ctypes.CFUNCTYPE(None, ctypes.POINTER(DriverCall))


class CallHooks:
    """The hooks of this process. They stay once they are installed: libraries keep the pointers that they looked up."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._lib = library
        # Calls that are short and must not give Python's lock away.
        self._quick = ctypes.PyDLL(None, handle=library._handle)
        library.wl_hooks_install.argtypes, library.wl_hooks_install.restype = [c_char_p, c_void_p], c_char_p
        library.wl_hooks_next.argtypes, library.wl_hooks_next.restype = [c_int], ctypes.POINTER(DriverCall)
        for name in ("wl_make_call", "wl_hooks_make_taken"):
            getattr(library, name).argtypes = [ctypes.POINTER(DriverCall), c_uint64, c_void_p]
        quick = self._quick
        quick.wl_hooks_find.argtypes = [c_uint64, ctypes.POINTER(_Origin)]
        quick.wl_hooks_close.argtypes, quick.wl_hooks_close.restype = [c_uint64, c_void_p, c_uint64], c_int64
        quick.wl_hooks_count.argtypes, quick.wl_hooks_count.restype = [c_int64], c_uint64
        quick.wl_reopen_function.argtypes = [c_uint64]
        quick.wl_hooks_take.argtypes = [ctypes.POINTER(DriverCall)]
        quick.wl_hooks_finish.argtypes = [ctypes.POINTER(DriverCall)]
        self._listener: Any = None
        self.context_ends: Callable[[], object] | None = None
        """Called before a context and all memory in it go."""
        self._server: threading.Thread | None = None
        self._taken = threading.local()

    def install(self) -> str | None:
        """Stand in front of the driver. Return what is wrong if that cannot be done."""
        self._lib.wl_hooks_leave_alone(c_char_p("".join(f"{part}\n" for part in LEFT_ALONE).encode()))
        state = ctypes.cast(ctypes.pythonapi.PyGILState_GetThisThreadState, c_void_p)
        problem = self._lib.wl_hooks_install(DRIVER.encode(), state)
        return problem.decode(errors="replace") if problem else None

    def listen(self, answer: Answer) -> Callable[[], None]:
        """Let `answer` see every call; return a function that ends this. No exception may leave `answer`."""

        self._listener = _LISTENER(lambda call: answer(call.contents))
        serving = threading.Event()
        serving.set()
        self._lib.wl_hooks_serve(1)
        self._lib.wl_hooks_listen(self._listener)
        self._server = BackgroundThread(self._serve, "warplens-calls", args=(answer, serving))
        self._server.start()

        def stop() -> None:
            atexit.unregister(stop)
            self._lib.wl_hooks_listen(None)
            serving.clear()
            self._lib.wl_hooks_serve(0)
            if self._server is not None and self._server is not threading.current_thread():
                self._server.join(timeout=10)

        atexit.register(stop)  # a thread of C++ must not call into an interpreter that ends
        return stop

    def _serve(self, answer: Answer, serving: threading.Event) -> None:
        """Answer the calls of threads that Python does not know."""
        while serving.is_set():
            call = self._lib.wl_hooks_next(500)
            if not call or not self._quick.wl_hooks_take(call):
                continue
            self._taken.here = True
            self._lib.wl_hooks_pass(1)
            try:
                answer(call.contents)
            finally:
                self._lib.wl_hooks_pass(-1)
                self._taken.here = False
                self._quick.wl_hooks_finish(call)

    @property
    def answers_elsewhere(self) -> bool:
        """Whether the call that is being answered was made in another thread."""
        return bool(getattr(self._taken, "here", False))

    def make(self, call: DriverCall, function: int | None = None, params: int | None = None) -> int:
        """Make a call, of another function or with other arguments if they are given. Return the driver's status."""
        target = call.function if function is None else function
        if not self.answers_elsewhere:
            return int(self._lib.wl_make_call(call, target, params))
        if self._lib.wl_hooks_make_taken(call, target, params):
            raise TimeoutError("the thread that made this call did not wait for its answer")
        return int(call.status)

    def set_patience(self, until_taken_ms: int, until_finished_ms: int) -> None:
        """How long a thread that Python does not know waits for its call to be taken, and for the answer."""
        self._lib.wl_hooks_patience(until_taken_ms, until_finished_ms)

    def find(self, handle: int) -> HandleOrigin | None:
        """Where a handle is from; None where it was made before the hooks were there, or by another front end."""
        origin, home = _Origin(), _Origin()
        if not self._quick.wl_hooks_find(handle, origin):
            return None
        self._quick.wl_hooks_find(origin.parent, home)
        symbol = (origin.name or b"").decode(errors="replace")
        kind = HandleKind(origin.kind)
        return HandleOrigin(kind, symbol, int(origin.parent), int(home.image or 0), int(home.size))

    def close(self, function: int, shape: Shape | None, context: int = 0) -> int:
        """Show no more launches of a function with this shape, or with any; return a number for `count`. Kernels of
        libraries have one handle in all contexts, so `context` says where; 0 for everywhere."""
        sizes = None if shape is None else (c_uint32 * 7)(*shape.grid, *shape.block, shape.shared)
        return int(self._quick.wl_hooks_close(function, sizes, context))

    def count(self, number: int) -> int:
        """Launches that were not shown."""
        return int(self._quick.wl_hooks_count(number))

    def reopen_function(self, function: int) -> None:
        """Show the launches of a function again; what was counted is kept."""
        self._quick.wl_reopen_function(function)

    def use(self, calls: tuple[int, int, int, int]) -> None:
        """Let launches that are made without Python call these functions of the driver (`Driver.launch_calls`)."""
        self._lib.wl_ready_driver(*map(c_void_p, calls[:3]))

    def answer_configs(self, answer: Any, plain: Any, launch_ex: int) -> int:
        """Let `answer` make launches by a configuration, a kernel and the addresses of its arguments, where that cannot
        be done without Python; `plain` is what the program makes them by. Return the address of the function that the
        program is to call instead. Without an answer, all are made by `plain`."""
        self._lib.wl_hooks_answer_config(answer, plain, c_void_p(launch_ex))
        return ctypes.cast(self._lib.wl_hooks_launch_config, c_void_p).value or 0

    def reopen(self) -> None:
        """Show every launch again."""
        self._quick.wl_hooks_reopen()

    def suspend_ready(self, more: int) -> None:
        """Let no launch be recorded without Python, until the same is called with -1."""
        self._quick.wl_ready_suspend(more)

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Let the calls of this thread pass."""
        self._lib.wl_hooks_pass(1)
        try:
            yield
        finally:
            self._lib.wl_hooks_pass(-1)


@contextmanager
def passing() -> Iterator[None]:
    """Let the calls of this thread pass the hooks, if there are any."""
    hooks = installed_hooks()
    if hooks is None:
        yield
        return
    with hooks.passing():
        yield


_installed: list[CallHooks] = []


def installed_hooks() -> CallHooks | None:
    """The hooks, if they are there already."""
    return _installed[0] if _installed else None


@functools.cache
def hook_library() -> tuple[CallHooks | None, str]:
    """The hooks, whether they are installed or not; or None and the reason why they cannot be had."""
    library, reason = load_hooks()
    return None if library is None else CallHooks(library), reason or ""


@functools.cache
def call_hooks() -> tuple[CallHooks | None, str]:
    """The hooks, installed; or None and the reason why they are not."""
    hooks, reason = hook_library()
    if hooks is None:
        return None, reason
    problem = hooks.install()
    if problem:
        return None, problem
    _installed.append(hooks)
    return hooks, ""
