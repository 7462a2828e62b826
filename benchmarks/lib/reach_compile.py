"""Public kernels compiled, woven and assembled without a GPU, for benchmarks/reach.py: registers and spills.

Each library's kernels are compiled by the library itself, as the programs of its users do. `weave_and_assemble` then
takes the way of an intercepted launch, with ptxas in the place of the driver: the first weaving that does no harm, from
all default classes down to the lives of the warps.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.lib.reach_compile_jit import helion_examples, pallas_examples
from benchmarks.lib.reach_deep_gemm import deep_gemm_kernels
from warplens.auto.rules import DEFAULT, Auto
from warplens.auto.rungs import rungs
from warplens.frontends.intercept.woven_module import Unavailable, marked_text
from warplens.ptx.isa_version import lowered_for
from warplens.ptx.symbols import plain_name
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import parse
from warplens.weave.fit.candidates import Candidate, fixed_candidates, intercepted_candidates
from warplens.weave.fit.harm import LIFE_SPILLS, Guard
from warplens.weave.fit.ptxas_output import read_kernels
from warplens.weave.fit.resources import UNUSABLE, Resources
from warplens.weave.fit.search import search
from warplens.weave.weaving import Weaving

Row = dict[str, Any]
Texts = Iterator[tuple[str, str]] | Iterator[tuple[str, Row]]
"""Names of examples, each with a PTX module; or with its row, if the way to it is another."""
ARCH = "sm_90a"


def ptxas() -> str:
    """The assembler that a library brings, the one on PATH, or the one in Triton's wheel."""
    found = os.environ.get("REACH_PTXAS") or shutil.which("ptxas")
    if not found:
        spec = importlib.util.find_spec("triton")
        found = str(Path(spec.origin).parent / "backends/nvidia/bin/ptxas") if spec and spec.origin else ""
    return found


def assemble(text: str, symbol: str) -> Resources:
    """What ptxas says that a kernel takes."""
    version = subprocess.run([ptxas(), "--version"], capture_output=True, text=True).stdout
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(lowered_for(text, version.partition("release")[2]))
        file.flush()
        command = [ptxas(), "-v", f"-arch={ARCH}", file.name, "-o", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[0])
    return read_kernels(done.stderr)[symbol]


def weave_and_assemble(text: str, symbol: str) -> Row:
    """The row of one kernel."""
    row: Row = {"kernel": plain_name(symbol)}
    try:
        plain = assemble(text, symbol)
    except (RuntimeError, KeyError) as error:
        return {**row, "refused": f"ptxas does not take the plain kernel: {error}"}
    row |= {"registers": plain.registers, "spills": plain.spills}
    problem, limit = "", max(plain.registers, 40)
    for rung in rungs(Auto(DEFAULT)):
        for keeps in (False, True):

            def attempt(candidate: Candidate, auto: Auto = rung.auto, keeps: bool = keeps) -> tuple[Any, Resources]:
                try:
                    made = marked_text(text, symbol, auto, candidate.how, candidate.registers, keeps_parameters=keeps)
                    return made, assemble(made[0].text, symbol)
                except RuntimeError:
                    return None, UNUSABLE

            guard = Guard(lambda: plain, free_spills=LIFE_SPILLS if rung.lives_only else 0)
            ways = (
                fixed_candidates(Weaving(), lambda: limit)
                if rung.fixed
                else intercepted_candidates(Weaving(), limit, aligned=True)
            )
            try:
                chosen = search(ways, attempt, guard)
            except (Unavailable, PtxError) as reason:
                problem = problem or str(reason)
                break
            if chosen.harm and chosen.harm.refused:
                problem = problem or chosen.harm.words
                break
            name = "cell" if keeps else "parameter"
            row[f"registers_{name}"], row[f"spills_{name}"] = chosen.resources.registers, chosen.resources.spills
            row["sites"] = len(chosen.build[1].sites.get(symbol, ()))
        else:
            return {**row, "note": rung.note(problem) if problem else ""}
    return {**row, "refused": problem}


def warp_examples() -> Texts:
    """Kernels of the examples in Warp's wheel."""
    import warp as wp

    names = ("core.example_sph", "core.example_dem", "core.example_wave", "core.example_mesh", "core.example_raymarch",
             "core.example_raycast", "core.example_work_queue", "optim.example_diffray", "tile.example_tile_matmul",
             "tile.example_tile_nbody")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        wp.config.kernel_cache_dir, wp.config.lineinfo = f"{folder}/cache", True
        for name in names:
            try:
                module = importlib.import_module(f"warp.examples.{name}")
                wp.compile_aot_module(module, arch=90, module_dir=f"{folder}/{name}", use_ptx=True, strip_hash=True)
            except Exception as error:
                print(f"{name}: {str(error).splitlines()[0] if str(error) else error!r}", file=sys.stderr)
                continue
            for path in Path(f"{folder}/{name}").glob("*.ptx"):
                yield name, path.read_bytes().partition(b"\0")[0].decode()


def quack_kernels() -> Texts:
    """Kernels of quack, which calls all of its CuTe DSL kernels through TVM-FFI."""
    os.environ.update(CUTE_DSL_ARCH=ARCH, QUACK_ARCH="90", CUTE_DSL_KEEP_PTX="1", CUTE_DSL_LINEINFO="1")
    os.environ["QUACK_CACHE_ENABLED"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CUTE_DSL_DUMP_DIR"] = folder
        from cutlass import BFloat16, Float32, Int64

        # The package has functions of the same names.
        names = ("cross_entropy", "rmsnorm", "softmax", "topk")
        cross_entropy, rmsnorm, softmax, topk = (importlib.import_module(f"quack.{name}") for name in names)
        requests: dict[str, Callable[[], Any]] = {
            "softmax": lambda: softmax.Softmax.compile(BFloat16, BFloat16, 4096),
            "softmax backward": lambda: softmax.SoftmaxBackward.compile(BFloat16, BFloat16, BFloat16, 4096),
            "rmsnorm": lambda: rmsnorm._compile_rmsnorm_fwd(
                BFloat16, BFloat16, None, Float32, None, None, 4096, True, False, False, False
            ),
            "cross entropy": lambda: cross_entropy.CrossEntropy.compile(
                BFloat16, Int64, None, 32768, True, False, None, 1
            ),
            "topk": lambda: topk.TopK.compile(BFloat16, 1024, 32, True),
        }
        for name, compile_function in requests.items():
            for old in Path(folder).glob("*.ptx"):
                old.unlink()
            try:
                compile_function()
            except Exception as error:
                print(f"{name}: {error!r}"[:300], file=sys.stderr)
                continue
            for path in Path(folder).glob("*.ptx"):
                yield name, path.read_bytes().partition(b"\0")[0].decode()


def tilelang_examples() -> Texts:
    """Kernels of TileLang's examples."""
    from benchmarks.lib.reach_tilelang import examples

    yield from examples(ARCH)


def cutile_samples() -> Texts:
    """Kernels of cuTile's samples, whose PTX only its own assembler takes."""
    from cuda.tile._compile import _find_compiler_bin

    from benchmarks.lib.reach_cutile import samples

    os.environ["REACH_PTXAS"] = str(Path(_find_compiler_bin().path).parent / "ptxas")
    yield from samples(ARCH.rstrip("a"))
    del os.environ["REACH_PTXAS"]


LIBRARIES: dict[str, tuple[str, str, Callable[[], Texts]]] = {
    "nvidia_warp": ("warp", "warp-lang", warp_examples),
    "cute_tvm_ffi": ("quack", "quack-kernels", quack_kernels),
    "pallas": ("jax_plugins", "jax", pallas_examples),
    "helion": ("helion", "helion", helion_examples),
    "deep_gemm": ("warplens", "warplens", deep_gemm_kernels),
    "tilelang": ("tilelang", "tilelang", tilelang_examples),
    "cutile": ("cuda.tile", "cuda-tile", cutile_samples),
}
"""By front end: the module that must be there, its package, and the kernels. A new front end adds its line."""


def _each_kernel(text: str) -> Iterator[Row]:
    for entry in parse(text).entries:
        yield weave_and_assemble(text, entry.name)


def compile_all(out: Path, chosen: list[str]) -> list[Row]:
    """The rows of every library that is there."""
    rows: list[Row] = []
    for name, (module, package, texts) in LIBRARIES.items():
        if chosen and name not in chosen:
            continue
        if importlib.util.find_spec(module) is None:
            rows.append({"case": name, "not_here": f"{module} is not installed"})
            continue
        # The library is not imported here: it may read its settings when it is.
        version = f"{package} {importlib.metadata.version(package)}"
        try:
            for example, text in texts():
                row = {"case": name, "version": version, "example": example}
                woven = [text] if isinstance(text, dict) else _each_kernel(text)
                for one in woven:
                    rows.append(row | one)
                    print(
                        {key: value for key, value in rows[-1].items() if key != "version"}, file=sys.stderr, flush=True
                    )
        except Exception:
            traceback.print_exc()
            rows.append({"case": name, "version": version, "problem": traceback.format_exc().splitlines()[-1]})
    return rows
