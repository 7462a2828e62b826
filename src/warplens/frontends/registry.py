"""Every compiler and library whose kernels warplens records: one line each.

A front end is a module with a function `start(session)`, called when a profile starts. It puts the hooks of the
front end in place and returns a function that removes them, or None if there is nothing to do. It raises WarplensError
if the installed version of the library cannot be used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from warplens import session
from warplens.errors import WarplensError
from warplens.frontends.import_hook import when_imported


@dataclass(frozen=True)
class FrontEnd:
    """How a front end is attached, and how `warplens doctor` lists it."""

    library: str
    """Importing this module attaches the front end."""
    module: str
    """The module of warplens that has `start`."""
    kernels: str
    """What it records."""
    package: str
    """The package that has the library."""
    extra: str = ""
    """What pip installs it by, where that is not the package's name."""
    needs: tuple[str, ...] = ()
    """Libraries whose front ends it builds on."""
    marked_by_others: bool = False
    """Whether its kernels may bring marks that are not of warplens, which are recorded without automatic ones too."""
    from_cpp: bool = False
    """Whether its launches are seen by the hooks in front of the driver."""
    tool: str = ""
    """A tool of CUDA that it cannot do without."""

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f"pip install {self.extra or self.package}"


_CUDA = "'warplens[cuda]'"
FRONT_ENDS = (
    FrontEnd(
        "triton",
        "warplens.frontends.triton.frontend",
        "Triton and Gluon kernels",
        "triton",
        "'warplens[triton]'",
    ),
    FrontEnd(
        "torch._inductor.runtime.triton_heuristics",
        "warplens.frontends.triton.inductor",
        "kernels of torch.compile",
        "torch",
    ),
    FrontEnd(
        "helion.runtime.kernel",
        "warplens.frontends.triton.helion_tuner",
        "Helion kernels",
        "helion",
        needs=("triton",),
    ),
    FrontEnd("cupy", "warplens.frontends.cupy", "CuPy RawKernel and RawModule", "cupy", "cupy-cuda13x"),
    FrontEnd("cuda.core", "warplens.frontends.cuda_core", "CUDA C++ through NVRTC", "cuda-core", _CUDA),
    FrontEnd(
        "cuda.bindings.driver", "warplens.frontends.cuda_bindings", "CUDA C++ through NVRTC", "cuda-bindings", _CUDA
    ),
    FrontEnd("numba.cuda", "warplens.frontends.numba", "numba's CUDA kernels", "numba-cuda", needs=("cuda.core",)),
    FrontEnd(
        "cutlass.cutlass_dsl",
        "warplens.frontends.cute.automatic",
        "CuTe DSL kernels",
        "nvidia-cutlass-dsl",
        "'warplens[cute]'",
        marked_by_others=True,
    ),
    FrontEnd(
        "jax._src.compiler",
        "warplens.frontends.jax_xla",
        "JAX: Pallas and XLA's own kernels",
        "jax",
        "'jax[cuda13]'",
        from_cpp=True,
        tool="ptxas",
    ),
    FrontEnd("warp", "warplens.frontends.nvidia_warp", "NVIDIA Warp kernels", "warp-lang", from_cpp=True),
    FrontEnd(
        "tilelang",
        "warplens.frontends.tilelang.frontend",
        "TileLang kernels",
        "tilelang",
        needs=("warplens",),
        from_cpp=True,
        tool="nvcc",
    ),
    FrontEnd(
        "cuda.tile",
        "warplens.frontends.cutile.frontend",
        "cuTile kernels",
        "cuda-tile",
        "'cuda-tile[tileiras]'",
        needs=("warplens",),
        from_cpp=True,
        tool="tileiras",
    ),
)
ALWAYS = FrontEnd("warplens", "warplens.frontends.driver_calls.frontend", "kernels launched from C++", "warplens")
"""Attached to every profile: no library that Python imports stands for it."""
_BY_LIBRARY = {front_end.library: front_end for front_end in (*FRONT_ENDS, ALWAYS)}
attached: set[str] = set()


def attach(library: str) -> None:
    """Let every session start the front end of `library`, the running one included."""
    if library in attached:
        return
    attached.add(library)
    front_end = _BY_LIBRARY[library]
    for needed in front_end.needs:
        attach(needed)
    try:
        session.attach(import_module(front_end.module).start)
    except WarplensError:
        attached.discard(library)
        raise


def watch(failed: Callable[[str, WarplensError], None], *, unmarked: bool = True) -> Callable[[], None]:
    """Attach each front end when its library is imported, or now if it is. Return a function that stops watching.
    Without `unmarked`, only those whose kernels may have marks that are not of warplens.

    A front end that refuses must not make the program's own import fail: `failed` is called instead.
    """

    def try_to_attach(library: str) -> None:
        try:
            attach(library)
        except WarplensError as error:
            failed(library, error)

    wanted = [library for library, one in _BY_LIBRARY.items() if unmarked or one.marked_by_others]
    return when_imported(dict.fromkeys(wanted, try_to_attach))
