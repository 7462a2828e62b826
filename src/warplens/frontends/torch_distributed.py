"""Note each collective of torch.distributed: which one, when it began and ended, and whom the rank waited for.

Of those that C++ starts by itself, such as DistributedDataParallel's reducer, the end is not known.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from warplens.driver.libcuda import driver
from warplens.errors import WarplensError
from warplens.frontends.collective_operators import watch_operators
from warplens.frontends.import_hook import when_imported
from warplens.frontends.library_hooks import remover
from warplens.frontends.process_group import watch_membership
from warplens.frontends.wrap import wrap
from warplens.record.rank_notes import ALL, NONE
from warplens.session import Session
from warplens.session.collective_log import OpenCall
from warplens.session.host_clock import now_ns
from warplens.wording import number_ranges

_MODULE = "torch.distributed.distributed_c10d"
_EVERYONE = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "barrier",
)  # fmt: skip
"""Each rank waits for all."""
_FROM = ("broadcast", "broadcast_object_list", "scatter", "scatter_object_list")
"""All wait for `src`."""
_TO = ("reduce", "gather", "gather_object")
"""`dst` waits for all."""
_DEVICE_BACKEND = "nccl"
"""With this backend only the device waits, except in a barrier."""


@dataclass(frozen=True)
class _Operation:
    """A function of torch.distributed, and the places of its parameters."""

    name: str
    places: dict[str, int]

    def given(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        at = self.places.get(name, len(arguments))
        return named.get(name, arguments[at] if at < len(arguments) else None)


class _Calls:
    """The calls of one session."""

    def __init__(self, session: Session, distributed: Any) -> None:
        self._session, self._distributed = session, distributed
        self._inside = threading.local()
        self._groups: dict[int, tuple[Any, str]] = {}
        """By id, a group and its name."""

    def follow(self, operation: _Operation) -> Callable[..., Any]:
        def call(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            # Some are made of others, which are not calls of the program.
            if getattr(self._inside, "on", False):
                return original(*arguments, **named)
            self._inside.on, noted = True, None
            try:
                noted = self._begin(operation, arguments, named)
                result = original(*arguments, **named)
                if noted is not None:
                    self._end(noted, operation, arguments, named)
                return result
            finally:
                self._inside.on = False
                if noted is not None:
                    noted.returned = True

        return call

    def from_cpp(self, name: str, given: Callable[[], tuple[Any, dict[str, Any]]]) -> OpenCall | None:
        """Note the begin of a collective, unless a Python function calls it, which is noted instead."""
        if getattr(self._inside, "on", False):
            return None
        try:
            group, arguments = given()
            known = {"group": group, **arguments}
            if "root_rank" in arguments:
                known["src"] = known["dst"] = self._distributed.get_process_group_ranks(group)[arguments["root_rank"]]
            return self._begin(_Operation(name, {}), (), known)
        except Exception:  # an unknown version of torch must not fail because of us
            return None

    def _begin(self, operation: _Operation, arguments: tuple[Any, ...], named: dict[str, Any]) -> OpenCall | None:
        """Note the begin of a call. Whatever is wrong with it is for torch to say."""
        log = self._session.collectives
        try:
            group = operation.given("group", arguments, named)
            if log is None or not self._distributed.is_initialized() or self._distributed.get_rank(group) < 0:
                return None
            noted = log.begin(self._name(group), operation.name, self._waits_for(operation, arguments, named), now_ns())
            if noted.kept:
                self._stamp(noted, operation, arguments, named)
            noted.begin_ns = now_ns()
            return noted
        except Exception:  # an unknown version of torch must not fail because of us
            return None

    def _end(self, noted: OpenCall, operation: _Operation, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if operation.given("async_op", arguments, named):
            return
        with suppress(Exception):
            if self._distributed._world.pg_coalesce_state:
                return  # torch only collects calls, and makes them later
            backend = self._distributed.get_backend(operation.given("group", arguments, named))
            if operation.name == "barrier" or _DEVICE_BACKEND not in str(backend):
                noted.end_ns = now_ns()
            if noted.begin_slot and noted.stamps is not None:
                noted.end_slot = noted.stamps.stamp(_current_stream())

    def _stamp(self, noted: OpenCall, operation: _Operation, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Where the data is on a device, the rank gets there when its stream does."""
        if not any(_is_on_gpu(one) for one in (*arguments, *named.values())):
            return
        stream, lib = _current_stream(), driver()
        if lib.is_capturing(stream):
            return
        with suppress(WarplensError), lib.relaxed():
            engine = self._session.buffers.engine()
            noted.device, noted.stamps = engine.device.index, engine.stamps
            noted.begin_slot = noted.stamps.stamp(stream)

    def _name(self, group: Any) -> str:
        """A group's name, which is the same on all its ranks."""
        found = self._groups.get(id(group))
        if found is None:
            ranks = number_ranges(self._distributed.get_process_group_ranks(group), most=1 << 16)
            own = group if group is not None else self._distributed.group.WORLD
            self._groups[id(group)] = found = group, f"{getattr(own, 'group_name', '')}:{ranks}"
        return found[1]

    def _waits_for(self, operation: _Operation, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
        if operation.name in _EVERYONE:
            sizes = any(operation.given(f"{side}_split_sizes", arguments, named) for side in ("input", "output"))
            return NONE if sizes else ALL  # of a split of size 0, nobody waits
        rank = self._distributed.get_rank()
        if operation.name in _FROM:
            root = operation.given("src", arguments, named)
            return NONE if root is None or root == rank else str(int(root))
        root = operation.given("dst", arguments, named)
        return ALL if root == rank else NONE


def watch_collectives(session: Session) -> Callable[[], None]:
    """Note the collectives of a session from now on. Return a function that stops this."""
    undo: list[Callable[[], None]] = []

    def follow(_: str) -> None:
        module, package = sys.modules[_MODULE], sys.modules["torch.distributed"]
        calls = _Calls(session, module)
        for name in (*_EVERYONE, *_FROM, *_TO):
            if hasattr(module, name):
                places = {one: at for at, one in enumerate(inspect.signature(getattr(module, name)).parameters)}
                wrapper = calls.follow(_Operation(name, places))
                # Programs call what the package has taken from the module.
                for owner in (module, package):
                    if hasattr(owner, name):
                        original = getattr(owner, name)
                        undo.append(wrap(owner, name, wrapper))
                        _let_dynamo_know(original, getattr(owner, name))

        started = threading.Lock()

        def follow_operators(*_: int) -> None:
            with suppress(AttributeError):  # an old version of torch
                if started.acquire(blocking=False):
                    undo.append(watch_operators(calls.from_cpp))

        if getattr(module, "is_initialized", bool)():
            follow_operators()
        else:
            undo.append(watch_membership(follow_operators, lambda: None))

    undo.append(when_imported({"torch.distributed": follow}))
    return remover(undo)


def _let_dynamo_know(original: Callable[..., Any], wrapped: Callable[..., Any]) -> None:
    """torch.compile replaces collectives that it knows by their function."""
    module = sys.modules.get("torch.distributed._functional_collectives")
    known = getattr(module, "traceable_collective_remaps", {})
    if original in known:
        known[wrapped] = known[original]


def _is_on_gpu(value: Any) -> bool:
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    return bool(getattr(first, "is_cuda", False))


def _current_stream() -> int:
    return int(sys.modules["torch"].cuda.current_stream().cuda_stream)
