"""A PTX interpreter for machines without a GPU: exact results and a deterministic clock.

`run(text, "kernel", grid, block, args, memory=memory)` executes an entry of a module. The tests of the weaver use it,
and so does the demo on a machine without a GPU.

Supported: integer, bit, f16/bf16/f32/f64 and packed arithmetic, conversions, comparisons, `mov` with vectors, loads
and stores of every width and space (generic too), atomics and reductions, shuffles, votes, `match`, `redux`, `elect`,
barriers (named ones, `arrive` and `red` too), mbarriers, `cp.async`, `cp.async.bulk`, `ldmatrix`/`stmatrix`,
`mma.sync` m16n8k*, branches, `brx.idx`, calls by name (inlined), carry chains, clocks and special registers. Not
supported, with an error that names the line: wgmma, tensor copies (TMA with a tensor map), clusters, textures,
recursion, calls through pointers, 128-bit registers, and unknown
instructions. Approximate instructions (`ex2.approx`...) give numpy's result, which is more accurate than the GPU's.

For speed, threads of all resident blocks that are at the same instruction execute in one numpy operation. See
`cycle_clock.py` for the meaning of the times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warplens.ptx import tree
from warplens.simulate.cycle_clock import CycleClock
from warplens.simulate.global_memory import GlobalMemory
from warplens.simulate.loaded_module import MAX_STEPS, LoadedModule, Result, Shape, symbol_values

__all__ = ["CycleClock", "GlobalMemory", "LoadedModule", "Result", "run"]


def run(
    module: tree.PtxModule | str,
    entry: str,
    grid: Shape,
    block: Shape,
    args: Sequence[object],
    *,
    memory: GlobalMemory,
    shared: int = 0,
    clock: CycleClock | None = None,
    symbols: Mapping[str, object] | None = None,
    max_steps: int = MAX_STEPS,
) -> Result:
    """Place `module` in `memory`, set its variables to `symbols`, and launch `entry` once.

    To launch a module several times, or to read its variables afterwards, use a `LoadedModule`.
    """
    program = LoadedModule(module, memory)
    symbol_values(program, symbols or {})
    return program.run(entry, grid, block, args, shared=shared, clock=clock, max_steps=max_steps)
