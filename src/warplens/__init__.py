"""See inside a GPU kernel: which warp did what, when, for how many cycles, on which SM."""

from __future__ import annotations

from importlib import import_module

from warplens.version import __version__

TYPE_CHECKING = False  # as in `typing`, whose import takes longer than all the rest of this module
if TYPE_CHECKING:
    from typing import Any

    from warplens.analyse.diff import diff as diff
    from warplens.analyse.region_sensitivity import Sensitivity as Sensitivity
    from warplens.analyse.roofline import roofline as roofline
    from warplens.bench import Case as Case
    from warplens.bench import benchmark as benchmark
    from warplens.decode.trace_loader import load as load
    from warplens.errors import WarplensError as WarplensError
    from warplens.profiling.delay_runs import sensitivity as sensitivity
    from warplens.profiling.profile import profile as profile
    from warplens.session.window import step as step
    from warplens.trace.model import Trace as Trace

_LAZY = {
    "profile": "warplens.profiling.profile",
    "step": "warplens.session.window",
    "load": "warplens.decode.trace_loader",
    "diff": "warplens.analyse.diff",
    "roofline": "warplens.analyse.roofline",
    "sensitivity": "warplens.profiling.delay_runs",
    "benchmark": "warplens.bench",
    "Case": "warplens.bench",
    "Sensitivity": "warplens.analyse.region_sensitivity",
    "Trace": "warplens.trace.model",
    "WarplensError": "warplens.errors",
    "load_ipython_extension": "warplens.profiling.notebook_magic",
}
__all__ = [
    "Case",
    "Trace",
    "WarplensError",
    "__version__",
    "benchmark",
    "diff",
    "load",
    "profile",
    "roofline",
    "sensitivity",
    "step",
]


def __getattr__(name: str) -> Any:
    # Lazy, so that `import warplens` costs next to nothing inside a kernel author's program.
    if name in _LAZY:
        value = getattr(import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'warplens' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
