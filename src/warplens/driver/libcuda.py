"""The driver calls warplens needs, straight from libcuda: they work with torch, CuPy and cuda.core alike."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from warplens import native
from warplens.errors import WarplensError
from warplens.record.capture import Device

_CLOCK_KHZ, _SM_COUNT, _MAJOR, _MINOR = 13, 16, 75, 76
_HOST, _DEVICE = 1, 2
_NO_TIME, _NOT_READY = 2, 600
_CAPTURING = 1
_RELAXED = 2


class StreamCapture(NamedTuple):
    """What goes to a stream is recorded into a graph: the capture's number, its graph, and the node added last."""

    number: int
    graph: int
    node: int


class _Memcpy2D(ctypes.Structure):
    _fields_ = (
        ("src_x", c_size_t), ("src_y", c_size_t), ("src_type", c_int), ("src_host", c_void_p),
        ("src_device", c_uint64), ("src_array", c_void_p), ("src_pitch", c_size_t),
        ("dst_x", c_size_t), ("dst_y", c_size_t), ("dst_type", c_int), ("dst_host", c_void_p),
        ("dst_device", c_uint64), ("dst_array", c_void_p), ("dst_pitch", c_size_t),
        ("width", c_size_t), ("height", c_size_t),
    )  # fmt: skip


class _KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("function", c_void_p), ("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint),
        ("arguments", c_void_p), ("extra", c_void_p), ("kernel", c_void_p), ("context", c_void_p),
    )  # fmt: skip


@functools.cache
def has_driver() -> bool:
    """Whether there is a CUDA driver on this machine; asks nothing of it."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


class _Entered(threading.local):
    """Whether a thread is sure to have a current context."""

    here = False


class Driver:
    """One process's CUDA driver, with a current context."""

    def __init__(self) -> None:
        try:
            self._lib = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise WarplensError(
                "there is no NVIDIA driver on this machine (libcuda.so.1 is missing), so no kernel can be launched; "
                "compiling works (warplens.cuda.compile with arch='sm_90', say), and `warplens demo` runs without a GPU"
            ) from None
        self._calls: dict[str, Any] = {}
        # These are called for each recorded launch: they skip the look-up by name.
        self._get_context, self._get_capturing = self._lib.cuCtxGetCurrent, self._lib.cuStreamIsCapturing
        self._record_event = self._lib.cuEventRecord
        if hasattr(self._record_event, "argtypes"):
            self._record_event.argtypes = (c_void_p, c_void_p)  # so that numbers need not be wrapped for each call
        self._native: ctypes.CDLL | None = None
        self.runs_now: Callable[[int, int], int] = self._runs_now
        """Whether a context is current and what goes to a stream is run, not recorded into a graph."""
        self._entered = _Entered()
        self._entered.here = True
        self._call("cuInit", c_uint(0))
        self._context = c_void_p()
        self._call("cuCtxGetCurrent", byref(self._context))
        if not self._context.value:
            device = c_int()
            self._call("cuDeviceGet", byref(device), c_int(0))
            self._call("cuDevicePrimaryCtxRetain", byref(self._context), device)
            self._call("cuCtxSetCurrent", self._context)

    def _enter(self) -> None:
        """A context is current in one thread: one that has none yet gets that of the first."""
        self._entered.here = True
        current = c_void_p()
        self._call("cuCtxGetCurrent", byref(current))
        if not current.value:
            self._call("cuCtxSetCurrent", self._context)

    def _status(self, name: str, *arguments: object) -> int:
        if not self._entered.here:
            self._enter()
        return int((self._calls.get(name) or self._find(name))(*arguments))

    def _find(self, name: str) -> Any:
        """The function of the library, kept: looking it up takes longer than most calls."""
        function = getattr(self._lib, name + "_v2", None) if name in _VERSION_2 else None
        return self._calls.setdefault(name, function or getattr(self._lib, name))

    def _call(self, name: str, *arguments: object) -> None:
        status = self._status(name, *arguments)
        if status:
            self._fail(name, status)

    def _new(self, name: str, *arguments: object) -> int:
        """The handle or address that a call returns by its first argument."""
        made = c_void_p()
        self._call(name, byref(made), *arguments)
        return made.value or 0

    def _fail(self, name: str, status: int) -> None:
        text = c_char_p()
        self._lib.cuGetErrorString(c_int(status), byref(text))
        message = text.value.decode() if text.value else "unknown error"
        raise WarplensError(f"{name} failed: {message} (CUDA error {status})")

    def context(self) -> int:
        """The current context, one per GPU as a rule. Modules and their functions belong to one."""
        if not self._entered.here:
            self._enter()
        current = c_void_p()
        status = self._get_context(byref(current))
        if status:
            self._fail("cuCtxGetCurrent", status)
        return current.value or 0

    @contextmanager
    def inside(self, context: int) -> Iterator[None]:
        """Have this context current for the block."""
        self._call("cuCtxPushCurrent", c_void_p(context))
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent", byref(c_void_p()))

    def device(self) -> Device:
        """What the current context runs on."""
        index, version, name = c_int(), c_int(), ctypes.create_string_buffer(256)
        self._call("cuCtxGetDevice", byref(index))
        self._call("cuDeviceGetName", name, c_int(256), index)
        self._call("cuDriverGetVersion", byref(version))

        def attribute(number: int) -> int:
            value = c_int()
            self._call("cuDeviceGetAttribute", byref(value), c_int(number), index)
            return value.value

        return Device(
            name=name.value.decode(),
            index=index.value,
            sm_count=attribute(_SM_COUNT),
            capability=f"{attribute(_MAJOR)}.{attribute(_MINOR)}",
            clock_mhz=attribute(_CLOCK_KHZ) / 1000,
            driver=f"CUDA {version.value // 1000}.{version.value % 1000 // 10}",
        )

    def allocate(self, size: int) -> int:
        return self._new("cuMemAlloc", c_size_t(size))

    def free(self, address: int) -> None:
        """Give memory back. After a failed kernel this fails too, which other calls report."""
        self._status("cuMemFree", c_uint64(address))

    def clear(self, address: int, size: int, stream: int) -> None:
        self._call("cuMemsetD8Async", c_uint64(address), ctypes.c_ubyte(0), c_size_t(size), c_void_p(stream))

    def upload(self, address: int, data: bytes, stream: int) -> None:
        """A copy of `data` to the device; a few bytes from pageable memory are staged at once."""
        self._call("cuMemcpyHtoDAsync", c_uint64(address), c_char_p(data), c_size_t(len(data)), c_void_p(stream))

    def download(self, address: int, size: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        self._call("cuMemcpyDtoH", data, c_uint64(address), c_size_t(size))
        return data.raw

    def download_rows(self, address: int, pitch: int, width: int, rows: int, out_pitch: int) -> npt.NDArray[np.uint8]:
        """The first `width` bytes of each of `rows` rows, `out_pitch` bytes apart."""
        out = np.zeros(rows * out_pitch, np.uint8)
        if not rows or not width:
            return out
        job = _Memcpy2D(
            src_type=_DEVICE, src_device=address, src_pitch=pitch,
            dst_type=_HOST, dst_host=out.ctypes.data, dst_pitch=out_pitch, width=width, height=rows,
        )  # fmt: skip
        self._call("cuMemcpy2DUnaligned", byref(job))
        return out

    def copy_rows(
        self, host: int, out_pitch: int, address: int, pitch: int, width: int, rows: int, stream: int
    ) -> None:
        """Copy `width` bytes of each of `rows` rows to the host, in stream order; `host` should be pinned memory."""
        job = _Memcpy2D(
            src_type=_DEVICE, src_device=address, src_pitch=pitch,
            dst_type=_HOST, dst_host=host, dst_pitch=out_pitch, width=width, height=rows,
        )  # fmt: skip
        self._call("cuMemcpy2DAsync", byref(job), c_void_p(stream))

    def clear_rows(self, address: int, pitch: int, width: int, rows: int, stream: int) -> None:
        """Zero the first `width` bytes of each of `rows` rows, in stream order."""
        if rows and width:
            zero, sizes = ctypes.c_ubyte(0), (c_size_t(width), c_size_t(rows))
            self._call("cuMemsetD2D8Async", c_uint64(address), c_size_t(pitch), zero, *sizes, c_void_p(stream))

    def pinned(self, size: int) -> int:
        """Host memory that the device copies to by itself."""
        return self._new("cuMemHostAlloc", c_size_t(size), c_uint(0))

    def free_pinned(self, address: int) -> None:
        self._status("cuMemFreeHost", c_void_p(address))

    def synchronize(self) -> None:
        self._call("cuCtxSynchronize")

    def stream(self) -> int:
        """A stream that waits for no other."""
        return self._new("cuStreamCreate", c_uint(1))

    def destroy_stream(self, stream: int) -> None:
        self._call("cuStreamDestroy", c_void_p(stream))

    def synchronize_stream(self, stream: int) -> None:
        self._call("cuStreamSynchronize", c_void_p(stream))

    def event(self, stream: int) -> int:
        """A new event, which is over when all that was given to `stream` before is."""
        event = self._new("cuEventCreate", c_uint(0))
        self._call("cuEventRecord", c_void_p(event), c_void_p(stream))
        return event

    def new_event(self) -> int:
        """An event without a time, for `mark`, `reached` and `wait`."""
        return self._new("cuEventCreate", c_uint(_NO_TIME))

    def new_events(self, count: int) -> list[int]:
        """Several of them, at least one."""
        if self._native is not None and self._entered.here:
            made = (c_void_p * count)()
            found = self._native.wl_new_events(made, c_int(count), c_uint(_NO_TIME))
            if found:
                return [event or 0 for event in made[:found]]
        return [self.new_event() for _ in range(count)]

    def mark(self, event: int, stream: int) -> None:
        """Let `event` be reached when all that was given to `stream` before is done."""
        status = self._record_event(event, stream)
        if status and not self._entered.here:
            self._enter()
            status = self._record_event(event, stream)
        if status:
            self._fail("cuEventRecord", status)

    def reached(self, event: int) -> bool:
        """Return whether an event is over, without waiting. A kernel that failed counts as over."""
        return self._status("cuEventQuery", c_void_p(event)) != _NOT_READY

    def wait(self, event: int) -> None:
        """Wait for an event on the host; raises where a kernel before it failed."""
        self._call("cuEventSynchronize", c_void_p(event))

    def hold(self, stream: int, event: int) -> None:
        """Let `stream` continue only when `event` is reached; the host does not wait."""
        self._call("cuStreamWaitEvent", c_void_p(stream), c_void_p(event), c_uint(0))

    def destroy_event(self, event: int) -> None:
        self._status("cuEventDestroy", c_void_p(event))

    def is_idle(self, stream: int) -> bool:
        """Return whether all that was given to `stream` is done."""
        return self._status("cuStreamQuery", c_void_p(stream)) != _NOT_READY

    def elapsed_ns(self, first: int, second: int) -> float:
        """The time between two events that are over; they are given back."""
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", byref(milliseconds), c_void_p(first), c_void_p(second))
        for handle in (first, second):
            self._status("cuEventDestroy", c_void_p(handle))
        return milliseconds.value * 1e6

    def load(self, image: bytes) -> int:
        return self._new("cuModuleLoadData", c_char_p(image))

    def unload(self, module: int) -> None:
        self._call("cuModuleUnload", c_void_p(module))

    def function(self, module: int, name: str) -> int | None:
        handle = c_void_p()
        status = self._status("cuModuleGetFunction", byref(handle), c_void_p(module), c_char_p(name.encode()))
        return None if status else handle.value

    def load_library(self, image: bytes) -> int:
        """Code that is not tied to a context; PTX is assembled by the driver."""
        none = c_void_p()
        return self._new("cuLibraryLoadData", c_char_p(image), none, none, c_uint(0), none, none, c_uint(0))

    def kernel(self, library: int, name: str) -> int:
        """A kernel of a library; `kernel_function` is what the current context launches."""
        return self._new("cuLibraryGetKernel", c_void_p(library), c_char_p(name.encode()))

    def kernel_function(self, kernel: int) -> int:
        return self._new("cuKernelGetFunction", c_void_p(kernel))

    def kernel_library(self, kernel: int) -> int:
        return self._new("cuKernelGetLibrary", c_void_p(kernel))

    def name_of(self, handle: int, kind: str) -> str:
        """The symbol of a function (`kind` "Func") or of a library's kernel ("Kernel")."""
        name = c_char_p()
        self._call(f"cu{kind}GetName", byref(name), c_void_p(handle))
        return (name.value or b"").decode()

    def share_variable(self, name: str, plain: int, library: int, stream: int) -> None:
        """Copy a variable of a function's module to the library that stands in for it. A variable that the module does
        not give out by its name holds what it was compiled with."""
        module, source, target, size = c_void_p(), c_uint64(), c_uint64(), c_size_t()
        symbol = c_char_p(name.encode())
        self._call("cuFuncGetModule", byref(module), c_void_p(plain))
        if self._status("cuModuleGetGlobal", byref(source), byref(size), module, symbol):
            return
        self._call("cuLibraryGetGlobal", byref(target), byref(size), c_void_p(library), symbol)
        self._call("cuMemcpyDtoDAsync", target, source, size, c_void_p(stream))

    def library_variable(self, library: int, name: str) -> int:
        """The address of a variable of a library, in the current context."""
        address, size = c_uint64(), c_size_t()
        self._call("cuLibraryGetGlobal", byref(address), byref(size), c_void_p(library), c_char_p(name.encode()))
        return address.value

    def copy_on_device(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy device memory; on a stream that is captured, each replay copies again."""
        self._call("cuMemcpyDtoDAsync", c_uint64(target), c_uint64(source), c_size_t(size), c_void_p(stream))

    def active_blocks(self, function: int, threads: int, shared: int) -> int:
        """Blocks of the kernel that one SM holds at a time."""
        blocks = c_int()
        self._call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            byref(blocks), c_void_p(function), c_int(threads), c_size_t(shared),
        )  # fmt: skip
        return blocks.value

    def copy_settings(self, source: int, target: int) -> None:
        """Give a function the dynamic shared memory, carveout and cluster settings of another."""
        value = c_int()
        for number in _SETTINGS:
            if not self._status("cuFuncGetAttribute", byref(value), c_int(number), c_void_p(source)):
                self._status("cuFuncSetAttribute", c_void_p(target), c_int(number), value)

    def capture(self, stream: int) -> StreamCapture | None:
        """The capture that what goes to `stream` is recorded into; None where it is run."""
        status, number, graph, nodes, count = c_int(), c_uint64(), c_void_p(), ctypes.POINTER(c_void_p)(), c_size_t()
        outputs = (byref(status), byref(number), byref(graph))
        ask = functools.partial(self._status, "cuStreamGetCaptureInfo", c_void_p(stream), *outputs)
        # The last node is not told where its edges are of a special kind. Asking about the legacy stream while others
        # are captured fails too: it cannot be captured.
        told = not ask(byref(nodes), byref(count))
        if (not told and ask(None, None)) or status.value != _CAPTURING:
            return None
        return StreamCapture(number.value, graph.value or 0, (nodes[0] or 0) if told and count.value else 0)

    def speed_up(self) -> None:
        """Let the compiled library make the calls of recorded launches, if there is one. It may have to be compiled, so
        a thread that launches nothing should ask for this."""
        library = native.load()
        if library is None:
            return
        calls = (self._lib.cuCtxGetCurrent, self._lib.cuStreamIsCapturing, self._lib.cuEventCreate)
        library.wl_driver(*(ctypes.cast(call, c_void_p) for call in calls))
        self._native = library
        # It takes less than giving Python's lock away and getting it again, which another thread may take meanwhile.
        runs_now = ctypes.PyDLL(library._name, handle=library._handle).wl_runs_now
        runs_now.argtypes = (c_void_p, c_void_p)
        self.runs_now = runs_now

    def launch_calls(self) -> tuple[int, int, int, int]:
        """The addresses of what launches in C call: to get the context, to ask whether a stream is captured, to record
        an event, and to launch by a configuration."""
        names = ("cuCtxGetCurrent", "cuStreamIsCapturing", "cuEventRecord", "cuLaunchKernelEx")
        a, b, c, d = (ctypes.cast(getattr(self._lib, name), c_void_p).value or 0 for name in names)
        return a, b, c, d

    def _runs_now(self, stream: int, context: int) -> bool:
        return self.context() == context and not self.is_capturing(stream)

    def is_capturing(self, stream: int) -> bool:
        """Whether what goes to `stream` is recorded into a graph instead of being run."""
        if not self._entered.here:
            self._enter()
        capturing = c_int()
        return not self._get_capturing(c_void_p(stream), byref(capturing)) and capturing.value != 0

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """Allow every driver call in this thread while some stream is being captured; none of them is captured."""
        mode = c_int(_RELAXED)
        self._call("cuThreadExchangeStreamCaptureMode", byref(mode))
        try:
            yield
        finally:
            self._call("cuThreadExchangeStreamCaptureMode", byref(mode))

    def set_node_function(self, executable: int, node: int, function: int, shared: int) -> bool:
        """Let later launches of an executable graph run another function at a kernel node of its graph, with the same
        arguments and `shared` bytes of dynamic shared memory. Return whether the driver does it."""
        params = _KernelNode()
        if self._status("cuGraphKernelNodeGetParams", c_void_p(node), byref(params)):
            return False
        params.function, params.kernel, params.shared = function, None, shared
        return not self._status("cuGraphExecKernelNodeSetParams", c_void_p(executable), c_void_p(node), byref(params))

    def device_index(self) -> int:
        index = c_int()
        self._call("cuCtxGetDevice", byref(index))
        return index.value

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the current device."""
        free, total = c_size_t(), c_size_t()
        self._call("cuMemGetInfo", byref(free), byref(total))
        return free.value, total.value

    def parameter_sizes(self, function: int) -> list[int]:
        sizes: list[int] = []
        offset, size = c_size_t(), c_size_t()
        handle = c_void_p(function)
        while not self._status("cuFuncGetParamInfo", handle, c_size_t(len(sizes)), byref(offset), byref(size)):
            sizes.append(size.value)
        return sizes

    def resources(self, function: int) -> dict[str, int]:
        """What a thread and a block of the kernel take: registers, and bytes of static shared and of local memory."""
        value = c_int()
        found = {}
        for name, number in _FUNCTION_ATTRIBUTES.items():
            self._call("cuFuncGetAttribute", byref(value), c_int(number), c_void_p(function))
            found[name] = value.value
        return found

    def allow_shared(self, function: int, size: int) -> None:
        """Dynamic shared memory past 48 KiB must be asked for."""
        self._call("cuFuncSetAttribute", c_void_p(function), c_int(8), c_int(size))

    def launch(
        self,
        function: int,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[bytes],
        shared: int,
        stream: int,
    ) -> None:
        buffers = [ctypes.create_string_buffer(data, len(data)) for data in arguments]
        pointers = (c_void_p * len(buffers))(*(ctypes.addressof(buffer) for buffer in buffers))
        sizes = [c_uint(value) for value in (*grid, *block, shared)]
        self._call("cuLaunchKernel", c_void_p(function), *sizes, c_void_p(stream), pointers, None)

    def launch_config(self, config: int, function: int, arguments: int) -> None:
        """Launch as the CUlaunchConfig at `config` says, with the array of argument addresses at `arguments`."""
        self._call("cuLaunchKernelEx", c_void_p(config), c_void_p(function), c_void_p(arguments), None)


_SETTINGS = (8, 9, 14)
"""Function attributes that a program may set: dynamic shared memory, carveout, non-portable clusters."""
_FUNCTION_ATTRIBUTES = {"shared_bytes": 1, "local_bytes": 3, "registers": 4}
_VERSION_2 = {
    "cuMemAlloc", "cuMemFree", "cuMemcpyHtoDAsync", "cuMemcpyDtoH", "cuMemcpy2DUnaligned", "cuStreamDestroy",
    "cuMemGetInfo", "cuModuleGetGlobal", "cuMemcpyDtoDAsync", "cuCtxPushCurrent", "cuCtxPopCurrent",
    "cuEventDestroy", "cuMemcpy2DAsync", "cuMemsetD2D8Async", "cuStreamGetCaptureInfo",
    "cuGraphKernelNodeGetParams", "cuGraphExecKernelNodeSetParams",
}  # fmt: skip


@functools.cache
def driver() -> Driver:
    """The process's driver, opened when first needed."""
    return Driver()
