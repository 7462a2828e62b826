"""Run nvcc's steps one by one, and weave the PTX after the compiler wrote it and before anything reads it.

A source that cannot be woven is preprocessed and compiled once more with marks that the compiler sees. The host's half
of a source is the same for both, so no other step has to be repeated.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from warplens.frontends.assembled_ptx.ptxas_in_front import keep_output
from warplens.frontends.nvcc.assembler import NvccPtxas, PtxasRejected
from warplens.frontends.nvcc.dependencies import rule_arguments, rule_file, split_rules
from warplens.frontends.nvcc.dryrun import FILTER, VERBOSE, WOVEN, Step, Steps, plan_steps, read, write
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import PtxModule, parse
from warplens.record.c_header import INCLUDE
from warplens.weave.direct_only import why_direct
from warplens.weave.fit.module_fit import fit_module
from warplens.weave.stores.launch_tracks import kernel_comments
from warplens.weave.weaver import Woven, weave
from warplens.weave.weaving import LaunchBuffer, Weaving

_DRY_RUN = ("--dryrun", "-dryrun")
_ONLY_NVCC = {
    "-": "the source is read from a pipe",
    "-time": "nvcc times its steps",
    "--time": "nvcc times its steps",
    "-fdevice-time-trace": "nvcc times its steps",
    "--fdevice-time-trace": "nvcc times its steps",
}
"""Options that only nvcc itself can handle, and why."""
_WITH_LINES = {"-G", "--device-debug", "-lineinfo", "--generate-line-info"}
_OPTION_FILES = ("-optf", "--options-file")
_NEVER_WOVEN = {
    "-olto": "link-time optimisation compiles it once more",
    "--device-c": "relocatable device code may call marks of other files",
    "--debug_mode": "debug code (-G) reads a kernel's buffer from memory",
}
"""Options of the compiler step whose PTX cannot be woven, and why."""


@dataclass(frozen=True)
class WovenFile:
    """A PTX file that was woven: what the compiler wrote, the weaving, and the result."""

    plain: PtxModule
    how: Weaving
    woven: Woven


@dataclass
class NvccCall:
    """One call of nvcc. `how` is the weaving, except for what a full track does, which the source says."""

    nvcc: str
    arguments: Sequence[str]
    how: Weaving = field(default_factory=lambda: Weaving(store="spread"))
    keeps_ptx: bool = False
    """Whether the PTX of kernels without marks is kept, with line information, for profiles with automatic marks."""

    def run(self) -> int:
        """Return nvcc's exit status, or that of the step that failed."""
        folder = Path(tempfile.mkdtemp(prefix="warplens-nvcc-"))
        try:
            # An option that times nvcc's steps does so in a dry run too, and writes to the same file.
            names = [word.partition("=")[0] for word in self.given]
            reason = next((_ONLY_NVCC[name] for name in names if name in _ONLY_NVCC), "")
            dry = bool(set(_DRY_RUN) & set(self.given))
            steps = None if reason or dry else plan_steps(self.nvcc, [*self.arguments, *self._line_information], folder)
            if steps is not None and not steps.compiles:
                return self.run_nvcc([*self.arguments, f"-D{WOVEN}"])  # compiler caches read the preprocessor's output
            if steps is not None and steps.filters and not rule_arguments(self.arguments):
                reason, steps = "rules for make are asked for in another place than the command line", None
            if steps is not None:
                return _StepRunner(self, steps, folder).run()
            if reason:
                tell(f"marks are compiled, not woven: {reason}")
            return self.run_nvcc(self.arguments)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @functools.cached_property
    def given(self) -> list[str]:
        """All options that nvcc is given."""
        return [*self.arguments, *options_elsewhere(self.arguments)]

    @property
    def _line_information(self) -> list[str]:
        """The option that regions get their names by. It does not change machine code."""
        return ["-lineinfo"] if self.keeps_ptx and not _WITH_LINES.intersection(self.given) else []

    @property
    def verbose(self) -> bool:
        """Whether nvcc shows its steps: it was given -v, and not for a tool that it calls."""
        pairs = zip(("", *self.given), self.given, strict=False)
        return any(
            word in VERBOSE and not before.startswith("-X") and not before.endswith("-options")
            for before, word in pairs
        )

    def run_nvcc(self, arguments: Sequence[str]) -> int:
        """Run nvcc itself."""
        status = self.call(arguments).returncode
        return 128 - status if status < 0 else status

    def call(self, arguments: Sequence[str], capture_output: bool = False) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.nvcc, *arguments, f"-I{INCLUDE}"], capture_output=capture_output, text=True)


@dataclass
class _StepRunner:
    nvcc: NvccCall
    steps: Steps
    folder: Path
    woven: dict[str, WovenFile] = field(default_factory=dict)
    """The woven PTX files, by absolute path."""
    told: set[str] = field(default_factory=set)
    rules: list[str] = field(default_factory=list)
    """Rules for make that are not written yet."""

    def run(self) -> int:
        show = self.nvcc.verbose
        sys.stderr.write(self.steps.remarks + "".join(self.steps.assignments if show else []))
        for step in self.steps.steps:
            if show:
                sys.stderr.write(f"#$ {step.line}\n")
            sys.stderr.flush()
            if status := self._step(step):
                return status
        return 0

    def _step(self, step: Step) -> int:
        if step.tool == "rm":
            return 0  # temporary files, which are deleted with their folder
        if step.line.startswith(FILTER):
            return self._write_rule(step)
        if step.tool == "ptxas" and step.output:
            for word in step.words:
                if os.path.abspath(word) in self.woven:
                    return self._assemble(step, word)
        status = step.run()
        if status == 0 and step.tool == "ptxas" and self.nvcc.keeps_ptx:
            self._keep(step)
        return self._weave(step) if status == 0 and step.tool == "cicc" else status

    def _keep(self, step: Step) -> None:
        try:
            keep_output(step.words[1:])
        except OSError as error:
            tell(f"the PTX is not kept for profiles: {error}")

    def _write_rule(self, step: Step) -> int:
        """Write the next source's rule for make. One call of nvcc prints all of them, in the order of its steps."""
        if not self.rules:
            done = self.nvcc.call(rule_arguments(self.nvcc.arguments), capture_output=True)
            self.rules = split_rules(done.stdout)
            if done.returncode or not self.rules:
                sys.stderr.write(done.stderr or f"warplens nvcc: nvcc printed no rule for {rule_file(step)}\n")
                return done.returncode or 1
        write(Path(rule_file(step)), self.rules.pop(0))
        return 0

    def _weave(self, step: Step) -> int:
        """Weave what the compiler wrote, or compile the source again with direct marks."""
        path = Path(step.output)
        text = read(path) if path.is_file() else ""
        if "@warplens" not in text:
            return 0
        if reason := next((_NEVER_WOVEN[word] for word in _NEVER_WOVEN if word in step.words), ""):
            return self._direct(step, reason)
        if ".version" not in text:
            return self._direct(step, "it is not compiled to PTX")
        try:
            module = parse(text)
            if reason := why_direct(module):
                return self._direct(step, reason)
            how = self._how(module)
            woven = weave(module, buffer=LaunchBuffer(), how=how)
        except PtxError as problem:
            return self._direct(step, f"{problem.function or 'a kernel'}: {problem.problem}")
        except Exception as problem:
            # Whatever the weaver fails on, the program can be compiled without it.
            return self._direct(step, f"the weaver failed: {problem!r}")
        write(path, woven.text)
        self.woven[os.path.abspath(path)] = WovenFile(module, how, woven)
        return 0

    def _how(self, module: PtxModule) -> Weaving:
        modes = {said.split()[-1] for entry in module.entries for said in kernel_comments(entry) if said}
        return replace(self.nvcc.how, full="ring" if modes == {"ring"} else "stop")

    def _direct(self, compiler: Step, reason: str) -> int:
        """Compile again with marks that the compiler sees, and say why."""
        self._tell(compiler, reason)
        return self._compile_directly(compiler)

    def _tell(self, compiler: Step, reason: str) -> None:
        words = compiler.words
        name = words[words.index("--orig_src_file_name") + 1] if "--orig_src_file_name" in words else compiler.output
        if name not in self.told:
            self.told.add(name)
            tell(f"{name}: its marks are compiled, not woven: {' '.join(reason.split())}")

    def _compile_directly(self, compiler: Step) -> int:
        words = compiler.words[1:]
        before = next(step for step in self.steps.steps if step is not compiler and step.output in words)
        return before.direct().run() or compiler.run()

    def _assemble(self, step: Step, source: str) -> int:
        """Assemble woven PTX, in about the registers of the plain PTX."""
        file = self.woven[os.path.abspath(source)]
        ptxas = NvccPtxas(step, source, self.folder)
        try:
            made = fit_module(ptxas, file.plain, LaunchBuffer(), file.how, file.woven)
        except Exception as problem:  # whatever the weaver fails on, the program can be compiled without it
            del self.woven[os.path.abspath(source)]
            compiler = next(one for one in self.steps.steps if one.tool == "cicc" and one.output == source)
            first = str(problem).strip().partition("\n")[0]
            said = f"ptxas does not take it: {first}"
            if not isinstance(problem, PtxasRejected):
                said = f"the weaver failed: {problem!r}"
            if status := self._compile_directly(compiler) or step.run():
                return status  # ptxas rejects the unwoven source too, and has said why
            self._tell(compiler, said)
            return 0
        shutil.copyfile(made.build.path, step.output)
        write(Path(source), made.woven.text)  # a program that carries PTX carries that of its machine code
        sys.stderr.write(ptxas.printed(made.build))
        return 0


def tell(what: str) -> None:
    sys.stderr.write(f"warplens nvcc: {what}\n")
    sys.stderr.flush()


def options_elsewhere(arguments: Sequence[str]) -> list[str]:
    """Return the options that nvcc reads from its environment and from the files named on the command line."""
    texts = [os.environ.get(name, "") for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")]
    for word, following in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if name in _OPTION_FILES:
            paths = map(Path, (value if equals else following).split(","))
            texts += [read(path) for path in paths if path.is_file()]
    return " ".join(texts).split()
