"""The interface of the devices that run cases: a GPU or the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from warplens.bench.measurement_method import Method
from warplens.bench.throttle import Reading

Call = Callable[[], Any]


class Backend(Protocol):
    """A device that runs cases. `name` is cuda or cpu; `device` is the model name."""

    name: str
    device: str

    def resolve(self, method: Method) -> Method:
        """Return the method with every `auto` replaced; raise an error for a setting this backend does not support."""

    def facts(self) -> dict[str, Any]:
        """Return properties of the device to store with the results."""

    def seconds(self) -> float:
        """Return the current time, for warm-up and timeout."""

    def input_sets(self, arguments: tuple[Any, ...]) -> int:
        """Return how many sets of inputs of this size exceed the cache."""

    def copy(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Copy a set of inputs."""

    def prepare(self, calls: Sequence[Call], method: Method) -> Sequence[Call]:
        """Return the calls in the form to be timed: unchanged, or captured as graphs."""

    def sample(self, calls: Sequence[Call], method: Method) -> list[float]:
        """Time each of these calls, in ns."""

    def memory(self) -> int | None:
        """Return the bytes in use now, and reset the peak."""

    def peak(self) -> int | None:
        """Return the peak of the bytes in use since `memory()`."""

    def clocks(self) -> list[Reading]:
        """Return the clock readings under load since the last call; empty if the clock cannot be read."""

    def wide(self, result: Any) -> Any:
        """Convert a result to float64, in the library that compares it."""

    def recover(self) -> str:
        """Free memory after a failure; return the reason if no further case can run, else an empty string."""


def out_of_memory(error: BaseException) -> bool:
    """Whether this error, from torch, CuPy, the driver or Python, means out of memory."""
    named = {kind.__name__ for kind in type(error).__mro__}
    return bool(named & {"MemoryError", "OutOfMemoryError"}) or "out of memory" in str(error).lower()
