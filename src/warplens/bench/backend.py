"""What runs the cases: the same few operations on a GPU and on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from warplens.bench.measurement_method import Method
from warplens.bench.throttle import Reading

Call = Callable[[], Any]


class Backend(Protocol):
    """Where cases run. `name` is cuda or cpu; `device` what it calls itself."""

    name: str
    device: str

    def resolve(self, method: Method) -> Method:
        """The method with every `auto` decided, refused where this backend cannot."""

    def facts(self) -> dict[str, Any]:
        """What a reader of the results needs to know of the device."""

    def seconds(self) -> float:
        """The clock of warm-up and timeout."""

    def input_sets(self, arguments: tuple[Any, ...]) -> int:
        """How many sets of inputs of this size outgrow the cache."""

    def copy(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Another set of inputs with the same values."""

    def prepare(self, calls: Sequence[Call], method: Method) -> Sequence[Call]:
        """The calls as they will be timed: as they are, or as graphs."""

    def sample(self, calls: Sequence[Call], method: Method) -> list[float]:
        """Nanoseconds of each of these calls."""

    def memory(self) -> int | None:
        """Bytes in use now, and from now on the peak starts anew."""

    def peak(self) -> int | None:
        """The most bytes in use since `memory()`."""

    def clocks(self) -> list[Reading]:
        """The device's clock as read under load since this was last asked; empty where nothing tells."""

    def wide(self, result: Any) -> Any:
        """A result as float64, in whatever library computes with it."""

    def recover(self) -> str:
        """Give memory back after a failure; the reason when nothing can run any more."""


def out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch, CuPy, the driver or Python says that memory ran out."""
    named = {kind.__name__ for kind in type(error).__mro__}
    return bool(named & {"MemoryError", "OutOfMemoryError"}) or "out of memory" in str(error).lower()
