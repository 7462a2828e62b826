"""The example kernels as compile jobs: what to compile, with which types, for which architecture."""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend

from warplens.auto.ptx import mark_barriers
from warplens.frontends.triton.assemble import Assembled, HandMarkedKernel
from warplens.frontends.triton.assemble import assemble as assembled
from warplens.frontends.triton.weaving_compiler import Recipe, WeavingCompiler
from warplens.weave.fit.ptxas_output import read_log, warnings_in
from warplens.weave.fit.resources import Resources
from warplens.weave.weaver import weave
from warplens.weave.weaving import Weaving

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "triton"))

_ALIGNED = ("M", "N", "K", "length")


@dataclass(frozen=True)
class Job:
    """A kernel, its signature, its constants and its options."""

    function: Any
    signature: dict[str, str]
    constants: dict[str, Any]
    options: dict[str, int]

    @property
    def name(self) -> str:
        return str(self.function.__name__)

    def compile(self, capability: int) -> Any:
        from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction

        names = self.function.arg_names
        types = {name: self.signature.get(name, "constexpr") for name in names}
        attributes = {
            (index,): [["tt.divisibility", 16]]
            for index, name in enumerate(names)
            if types[name].startswith("*") or name in _ALIGNED
        }
        constants = {(names.index(name),): value for name, value in self.constants.items()}
        source = GluonASTSource if isinstance(self.function, GluonJITFunction) else ASTSource
        return triton.compile(
            source(self.function, types, constants, attributes),
            target=GPUTarget("cuda", capability, 32),
            options=self.options,
        )

    def marked_ptx(self, capability: int) -> str:
        """The PTX as the compile hook weaves it: marks of barriers have found theirs."""
        return mark_barriers(str(self.compile(capability).asm["ptx"]), automatic=False)

    def woven(self, capability: int, how: Weaving) -> tuple[Resources, Assembled]:
        """What the plain kernel takes, and the woven one as a profile's compile hook makes it."""
        kernel = self.compile(capability)
        backend = make_backend(GPUTarget("cuda", capability, 32))
        options = backend.parse_options(dict(self.options))

        def stage(text: str, metadata: dict[str, Any]) -> bytes:
            return bytes(backend.make_cubin(text, metadata, options, capability))

        metadata, text = kernel.metadata._asdict(), self.marked_ptx(capability)
        woven = weave(text, how=how)
        assert woven.entries == {self.name: text.count("// @warplens ")}
        woven_as = functools.cache(lambda how: weave(text, how=how).text)
        made = HandMarkedKernel(stage, text, metadata, how).finish(woven_as, metadata["shared"])
        return made.plain or assembled(stage, text, metadata).resources, made


def jobs(capability: int) -> Iterator[Job]:
    """The examples, in tile sizes that fit the architecture's registers."""
    import attention
    import matmul
    import softmax
    import vector_add

    warps = {"num_warps": 4 if capability >= 90 else 8, "num_stages": 3}
    tile = {"BM": 128, "BN": 128, "BK": 64 if capability >= 90 else 32}
    matrices = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "M": "i32", "N": "i32", "K": "i32"}
    heads = {"q": "*fp16", "k": "*fp16", "v": "*fp16", "out": "*fp16", "scale": "fp32", "length": "i32"}
    vectors = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}
    yield Job(vector_add.vector_add, vectors, {"BLOCK": 1024}, {})
    yield Job(softmax.softmax, {"out": "*fp32", "source": "*fp32", "columns": "i32"}, {"BLOCK": 1024}, {})
    yield Job(matmul.matmul, matrices, tile, warps)
    yield Job(matmul.persistent_matmul, matrices, {"PROGRAMS": 132, **tile}, warps)
    yield Job(attention.attention, heads, {"BM": 128, "BN": 64, "HEAD": 64}, warps)
    if capability == 90:
        yield from _gluon()


def descriptor(*shape: int) -> str:
    """The type of a TMA descriptor of fp16 tiles."""
    from triton.experimental.gluon import language as gl

    layout = gl.NVMMASharedLayout.get_default_for(list(shape), gl.float16)
    return f"tensordesc<fp16[{', '.join(map(str, shape))}],{layout!r}>"


def _gluon() -> Iterator[Job]:
    import gluon_matmul

    signature = {"a": descriptor(128, 64), "b": descriptor(64, 128), "c": descriptor(128, 128), "K": "i32"}
    constants = {"BM": 128, "BN": 128, "BK": 64, "STAGES": 3, "num_warps": 8}
    yield Job(gluon_matmul.specialised_matmul, signature, constants, {"num_warps": 8})


@dataclass(frozen=True)
class Listing:
    """What ptxas made of a text."""

    registers: int
    spills: int
    warnings: tuple[str, ...]
    sass: str


@functools.lru_cache(maxsize=64)  # the same plain kernel is compared with many marked ones
def assemble(text: str, capability: int, *, disassemble: bool = False) -> Listing:
    """ptxas, the one this Triton uses for the architecture, and optionally nvdisasm."""
    from triton import knobs
    from triton.backends.nvidia.compiler import get_ptxas

    architecture = f"sm_{capability}" + ("a" if capability >= 90 else "")
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(text)
        command = [get_ptxas(capability).path, "-v", "-lineinfo", f"--gpu-name={architecture}", source, "-o", cubin]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        sass = ""
        if disassemble:
            tool = knobs.nvidia.nvdisasm.path
            sass = subprocess.run([tool, "-hex", "-c", cubin], capture_output=True, text=True, check=True).stdout
    log = done.stderr
    taken = read_log(log)
    return Listing(taken.registers, taken.spills, tuple(warnings_in(log)), sass)


def compile_woven(job: Job, capability: int, recipe: Recipe, plain: bytes | None = None) -> Any:
    """Compile a kernel with its marks woven in; `plain` is its machine code without them, if that is known."""
    compiler = WeavingCompiler(recipe)
    undo = compiler.install()
    try:
        with compiler.weaving(plain):
            return job.compile(capability)
    finally:
        undo()
