"""What a pair of kernels is: the cause of its slowness, and what runs both versions."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

BROKEN, REPAIRED = "broken", "repaired"


class Kernel(Protocol):
    def launch(self, grid: Any, block: Any, *arguments: Any, shared: int = 0) -> None: ...


class Lab(Protocol):
    """Where kernels run: a GPU, or the interpreter with small inputs."""

    sms: int

    def size(self, full: int, small: int) -> int:
        """Return `full` on a GPU and `small` in the interpreter."""

    def upload(self, values: np.ndarray[Any, Any]) -> Any: ...

    def zero(self, array: Any) -> None:
        """Set an array to zero, before a launch that counts in it."""

    def kernel(self, file: str, name: str, repaired: bool) -> Kernel: ...


@dataclass(frozen=True)
class Case:
    """Both versions of a kernel with their inputs in place. A kernel with nothing to repair has one version.

    `clear` are outputs that a run adds to, so they are zeroed before it.
    """

    run: Mapping[str, Callable[[], None]]
    outputs: Mapping[str, Any]
    expected: np.ndarray[Any, Any] | None = None
    tolerance: float = 0.0
    clear: Sequence[Any] = ()


@dataclass(frozen=True)
class Pair:
    """`cause` is what a right first finding names (see score.py); `regions` are where it may place it.

    `change` is the repair; without one there is nothing to repair. `maker` is the function that makes the case, by
    module, so that reading the table needs no compiler. `remains` are causes that the repaired version still has: to
    name one of them first is right. `records` is the room of each warp, `launches` how many of the broken version are
    recorded.
    """

    name: str
    language: str
    cause: str
    regions: tuple[str, ...]
    change: str
    maker: str
    kernel: str
    remains: tuple[str, ...] = ()
    records: int = 512
    launches: int = 1
    ncu: bool = False

    def make(self, lab: Lab) -> Case:
        module, function = self.maker.split(".")
        case: Case = getattr(importlib.import_module(f"benchmarks.truth.{module}"), function)(lab)
        return case

    @property
    def versions(self) -> tuple[str, ...]:
        return (BROKEN, REPAIRED) if self.change else (REPAIRED,)
