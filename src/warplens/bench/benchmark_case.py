"""One case to measure: the function, its inputs, its work and the expected result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warplens.errors import UsageError


@dataclass(frozen=True)
class Case:
    """What a benchmark function returns for one set of parameters.

    `fn(*inputs)` is timed. `inputs` is a tuple, or a function that takes a number and returns a tuple: the result for
    number 0 is checked, and `cache="rotate"` creates as many sets as it takes to exceed the L2 cache. Everything below
    is optional.

    - `flops`, `bytes`: the work of one call, for TFLOP/s, GB/s and the share of the roof.
    - `reference`: the expected result in float64, or a function of the inputs that computes it. A tuple is compared
      element by element with the tuple that `fn` returns.
    - `tolerance`: the maximum relative error. Default: depends on the type.
    - `dtype`: the type that selects compute peak and tolerance. Default: the parameter `dtype`, or the result's type.
    - `skip`: the reason not to measure this combination: `Case(skip="naive has no bf16")`.
    """

    fn: Callable[..., Any] | None = None
    inputs: tuple[Any, ...] | Callable[[int], tuple[Any, ...]] = ()
    flops: float | None = None
    bytes: float | None = None
    reference: Any = None
    tolerance: float | None = None
    dtype: str | None = None
    skip: str = ""

    def __post_init__(self) -> None:
        if self.fn is None and not self.skip:
            raise UsageError("Case: give fn=, the function to time, or skip=, the reason to skip the case")
        if self.fn is not None and not callable(self.fn):
            raise UsageError(f"Case: fn={self.fn!r} is not callable; pass a function or lambda")
        for name in ("flops", "bytes", "tolerance"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise UsageError(f"Case: {name}={value!r}: expected a finite number, at least 0")

    def arguments(self, number: int = 0) -> tuple[Any, ...]:
        """Return the inputs of call `number` as a tuple."""
        made = self.inputs(number) if callable(self.inputs) else self.inputs
        return made if isinstance(made, tuple) else (made,)
