"""The launch hook: right before the DSL runs a compiled function, its buffers get memory for this launch."""

from __future__ import annotations

import functools
from typing import Any

from cutlass.base_dsl.jit_executor import JitExecutor

from warplens.frontends.cute.buffer_argument import live
from warplens.frontends.cute.compiled_code import code_of


@functools.cache
def watch_launches() -> None:
    """Fill the buffers among a launch's arguments; launches without one are left alone."""
    original = JitExecutor.run_compiled_program

    @functools.wraps(original)
    def run_compiled_program(self: Any, exe_args: list[Any]) -> Any:
        if live:
            for argument in exe_args:
                buffer = live.get(getattr(argument, "value", argument))
                if buffer is not None:
                    buffer.fill(functools.partial(code_of, self))
        return original(self, exe_args)

    JitExecutor.run_compiled_program = run_compiled_program
