"""One thing to measure: what to call, with what, how much work it is and what it should give."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warplens.errors import UsageError


@dataclass(frozen=True)
class Case:
    """What a benchmark function returns for one set of parameters.

    `fn(*inputs)` is what is timed. `inputs` is a tuple, or a function from a number to one: number 0 is checked, and
    `cache="rotate"` asks for as many as it takes to outgrow the L2 cache. Everything below is optional.

    - `flops`, `bytes`: the work of one call, for TFLOP/s, GB/s and the share of the roof.
    - `reference`: the right result in float64, or a function of the inputs that computes it (called only after the
      memory was measured). A tuple is compared part by part with a tuple that `fn` returns.
    - `tolerance`: the largest relative error allowed; by default what the type allows.
    - `dtype`: which compute roof and tolerance hold; by default the parameter `dtype`, or the result's own type.
    - `skip`: why this combination is not measured: `Case(skip="naive has no bf16")`.
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
            raise UsageError("Case: give fn=, the function to time, or skip=, the reason not to")
        if self.fn is not None and not callable(self.fn):
            raise UsageError(f"Case: fn={self.fn!r} cannot be called; wrap the work in a function or lambda")
        for name in ("flops", "bytes", "tolerance"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise UsageError(f"Case: {name}={value!r} must be a number of at least 0")

    def arguments(self, number: int = 0) -> tuple[Any, ...]:
        """The inputs of call `number`, as a tuple."""
        made = self.inputs(number) if callable(self.inputs) else self.inputs
        return made if isinstance(made, tuple) else (made,)
