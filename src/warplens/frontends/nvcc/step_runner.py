"""nvcc's steps, one by one: PTX is woven when the compiler has written it, before anything reads it.

What cannot be woven is preprocessed and compiled once more with marks that the compiler sees. The host's half of a
source is the same for both, so nothing else has to be done again.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from warplens.errors import WarplensError
from warplens.frontends.nvcc.assembler import Ptxas, Refused
from warplens.frontends.nvcc.dependencies import asked_apart, rule_file, split
from warplens.frontends.nvcc.dryrun import FILTER, WOVEN, Step, Steps, planned, read, write
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import parse
from warplens.record.c_header import INCLUDE
from warplens.weave.direct_only import why_direct
from warplens.weave.fit.module_fit import fitted
from warplens.weave.stores.launch_tracks import kernel_comments
from warplens.weave.weaver import weave
from warplens.weave.weaving import LaunchBuffer, Weaving

_VERBOSE = ("-v", "--verbose")
_ASKS = ("--dryrun", "-dryrun")
_ITSELF = {
    "-": "the source is read from a pipe",
    "-time": "nvcc times its steps",
    "--time": "nvcc times its steps",
    "-fdevice-time-trace": "nvcc times its steps",
    "--fdevice-time-trace": "nvcc times its steps",
}
"""What only nvcc itself can do, and why."""
_FILES = ("-optf", "--options-file")
_APART = {
    "-olto": "link-time optimisation compiles it once more",
    "--device-c": "relocatable device code may call marks of other files",
}


@dataclass
class Driver:
    """One call of nvcc. `how` is the weaving, but for what a full track does, which the source says."""

    nvcc: str
    arguments: Sequence[str]
    how: Weaving = field(default_factory=lambda: Weaving(store="spread"))

    def run(self) -> int:
        """nvcc's exit status, or that of the step that failed."""
        folder = Path(tempfile.mkdtemp(prefix="warplens-nvcc-"))
        try:
            # What times its steps does so in a dry run too, to the same file.
            reason = next((_ITSELF[name] for word in self.given if (name := word.partition("=")[0]) in _ITSELF), "")
            steps = None if reason or set(_ASKS) & set(self.given) else planned(self.nvcc, self.arguments, folder)
            if steps is not None and not steps.compiles:
                return self.plainly([*self.arguments, f"-D{WOVEN}"])  # caches look at what the preprocessor says
            if steps is not None and steps.filters and not asked_apart(self.arguments):
                reason, steps = "rules for make are asked for in another place than the command line", None
            if steps is not None:
                return _Run(self, steps, folder).run()
            if reason:
                tell(f"marks are compiled, not woven: {reason}")
            return self.plainly(self.arguments)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @functools.cached_property
    def given(self) -> list[str]:
        """All words that nvcc is given."""
        return [*self.arguments, *given_elsewhere(self.arguments)]

    @property
    def verbose(self) -> bool:
        """Whether nvcc shows its steps: -v, but not that of a tool."""
        pairs = zip(("", *self.given), self.given, strict=False)
        return any(
            word in _VERBOSE and not before.startswith("-X") and not before.endswith("-options")
            for before, word in pairs
        )

    def plainly(self, arguments: Sequence[str]) -> int:
        """nvcc itself."""
        status = self.call(arguments).returncode
        return 128 - status if status < 0 else status

    def call(self, arguments: Sequence[str], capture_output: bool = False) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.nvcc, *arguments, f"-I{INCLUDE}"], capture_output=capture_output, text=True)


@dataclass
class _Run:
    driver: Driver
    steps: Steps
    folder: Path
    plain: dict[str, tuple[str, Weaving]] = field(default_factory=dict)
    """Of each file that is woven: its text, as the compiler wrote it, and how."""
    told: set[str] = field(default_factory=set)
    rules: list[str] = field(default_factory=list)
    """Rules for make that are not written yet."""

    def run(self) -> int:
        show = self.driver.verbose
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
            return 0  # temporary files, all of which go with their folder
        if step.line.startswith(FILTER):
            return self._rule(step)
        if step.tool == "ptxas" and step.output:
            for word in step.words:
                if os.path.abspath(word) in self.plain:
                    return self._assemble(step, word)
        status = step.run()
        return self._weave(step) if status == 0 and step.tool == "cicc" else status

    def _rule(self, step: Step) -> int:
        """Write the next source's rule. All are asked for at once: nvcc prints them in the order of its steps."""
        if not self.rules:
            asked = asked_apart(self.driver.arguments)
            done = self.driver.call(asked, capture_output=True)
            self.rules = split(done.stdout)
            if done.returncode or not self.rules:
                sys.stderr.write(done.stderr or f"warplens nvcc: nvcc printed no rule for {rule_file(step)}\n")
                return done.returncode or 1
        write(Path(rule_file(step)), self.rules.pop(0))
        return 0

    def _weave(self, step: Step) -> int:
        """Weave what the compiler wrote, or have it written with direct marks."""
        path = Path(step.output)
        text = read(path) if path.is_file() else ""
        if "@warplens" not in text:
            return 0
        try:
            if reason := next((_APART[word] for word in _APART if word in step.words), "") or why_direct(text):
                return self._direct(step, reason)
            how = self._how(text)
            write(path, weave(text, buffer=LaunchBuffer(), how=how).text)
        except PtxError as problem:
            return self._direct(step, f"{problem.function or 'a kernel'}: {problem.problem}")
        except (WarplensError, AssertionError, LookupError, ValueError) as problem:
            # Whatever the weaver stumbles over, the program can be compiled without it.
            return self._direct(step, f"the weaver failed: {problem!r}")
        self.plain[os.path.abspath(path)] = text, how
        return 0

    def _how(self, text: str) -> Weaving:
        modes = {said.split()[-1] for entry in parse(text).entries for said in kernel_comments(entry) if said}
        return replace(self.driver.how, full="ring" if modes == {"ring"} else "stop")

    def _direct(self, compiler: Step, reason: str) -> int:
        """Compile once more, with marks that the compiler sees, and say why."""
        self._tell(compiler, reason)
        return self._once_more(compiler)

    def _tell(self, compiler: Step, reason: str) -> None:
        words = compiler.words
        name = words[words.index("--orig_src_file_name") + 1] if "--orig_src_file_name" in words else compiler.output
        if name not in self.told:
            self.told.add(name)
            tell(f"{name}: its marks are compiled, not woven: {' '.join(reason.split())}")

    def _once_more(self, compiler: Step) -> int:
        words = compiler.words[1:]
        before = next(step for step in self.steps.steps if step is not compiler and step.output in words)
        return before.direct().run() or compiler.run()

    def _assemble(self, step: Step, source: str) -> int:
        """Machine code of woven PTX, in about the registers of the plain one."""
        text, how = self.plain[os.path.abspath(source)]
        ptxas = Ptxas(step, source, self.folder)
        try:
            made = fitted(ptxas, text, LaunchBuffer(), how)
        except Refused as problem:
            del self.plain[os.path.abspath(source)]
            compiler = next(one for one in self.steps.steps if one.tool == "cicc" and one.output == source)
            first = str(problem).strip().partition("\n")[0]
            if status := self._once_more(compiler) or step.run():
                return status  # nor does it take what nvcc makes of the source: it has said why
            self._tell(compiler, f"ptxas does not take it: {first}")
            return 0
        shutil.copyfile(made.build.path, step.output)
        sys.stderr.write(ptxas.said(made.build))
        return 0


def tell(what: str) -> None:
    sys.stderr.write(f"warplens nvcc: {what}\n")
    sys.stderr.flush()


def given_elsewhere(arguments: Sequence[str]) -> list[str]:
    """The words of options that are not on the command line: in the environment and in the files it names."""
    texts = [os.environ.get(name, "") for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")]
    for word, following in zip(arguments, (*arguments[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        if name in _FILES:
            paths = map(Path, (value if equals else following).split(","))
            texts += [read(path) for path in paths if path.is_file()]
    return " ".join(texts).split()
