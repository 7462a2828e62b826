"""cuTile without its compiler: what tileiras handed to ptxas is recorded once, and a script in its place repeats it.

tileiras and libnvvm take 45 MiB packed, ptxas 10. The script looks for the symbol of a recorded kernel in the bytecode
that cuTile gives it, and runs ptxas on the recorded PTX with the recorded host code: all that follows, cuTile's loading
and launching as well, is as ever. A kernel that was not recorded does not compile.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lib.stub_driver import StubDriver
from warplens.frontends.cutile.shadow_toolkit import TileModule

TOOLS = Path("nvidia/cu13/bin")
_RECORDED = Path("nvidia/cu13/recorded")
"""Beside `bin`, so that the folder with our ptxas in front has it too."""
_PTX, _OUTPUT, _HOST = "@ptx@", "@output@", "@host@"
_SCRIPT = f"""#!/bin/sh
PATH=/usr/bin:/bin:$PATH
tools=$(dirname "$0")
recorded=$tools/../recorded
case "$1" in --version|--help) exec cat "$recorded/$1" ;; esac
before= output= bytecode=
for argument; do
  [ "$before" = -o ] && output=$argument
  case "$argument" in
    */probe*.bytecode) exit 0 ;;  # cuTile tries which versions of its bytecode are known
    *.bytecode) bytecode=$argument ;;
  esac
  before=$argument
done
for module in "$recorded"/*/; do
  module=${{module%/}}
  grep -qaF "${{module##*/}}" "$bytecode" || continue
  set --
  while IFS= read -r word; do
    case "$word" in
      {_PTX}) word=$module/module.ptx ;;
      {_OUTPUT}) word=$output ;;
      *{_HOST}) word=${{word%{_HOST}}}$module/host.o ;;
    esac
    set -- "$@" "$word"
  done < "$module/arguments"
  exec "$tools/ptxas" "$@"
done
echo "none of the recorded kernels is in $bytecode" >&2
exit 1
"""


def replace(files: Path, modules: dict[str, TileModule]) -> None:
    """Put the script and what was recorded in the place of the compiler, in a folder with the files of cuTile."""
    tileiras, recorded = files / TOOLS / "tileiras", files / _RECORDED
    recorded.mkdir()
    for option in ("--version", "--help"):
        said = subprocess.run([tileiras, option], capture_output=True, text=True, check=True).stdout
        (recorded / option).write_text(said)
    for symbol, module in modules.items():
        folder = recorded / symbol
        folder.mkdir()
        (folder / "module.ptx").write_text(module.ptx)
        (folder / "host.o").write_bytes(module.host_code)
        (folder / "arguments").write_text("".join(f"{word}\n" for word in _general(module.arguments)))
    tileiras.write_text(_SCRIPT)
    tileiras.chmod(0o755)
    for path in ("nvidia/cu13/lib", "nvidia/cu13/nvvm"):
        shutil.rmtree(files / path)


def is_recorded(tileiras: str) -> bool:
    """Whether the compiler is the script."""
    return (Path(tileiras).parent.parent / _RECORDED.name).exists()


def _general(arguments: tuple[str, ...]) -> list[str]:
    words: list[str] = []
    for word in arguments:
        if words and words[-1] == "-o":
            words.append(_OUTPUT)
        elif word.endswith(".ptx"):
            words.append(_PTX)
        else:
            words.append(f"{word.partition('=')[0]}={_HOST}" if word.startswith("--nv-host=") else word)
    return words


class GpuArray:
    """An array that is only launched with, of a GPU that is not there."""

    def __init__(self, kind: str, *shape: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": kind, "data": (1 << 30, False), "version": 3, "strides": None,
        }  # fmt: skip


def record(kernels: Sequence[Any], launch_all: Callable[[], Any]) -> dict[str, TileModule]:
    """Compile what is launched on the driver of `StubDriver`; by symbol, what ptxas was given."""
    from cuda.tile import _compile

    from warplens.frontends.cutile.frontend import module_of
    from warplens.frontends.wrap import wrap

    driver = StubDriver()
    compiled: list[tuple[str, str]] = []

    def compile_tile(original: Callable[..., Any], function: Any, signatures: Any, arch: str, *given: Any,
                     **named: Any) -> Any:  # fmt: skip
        made = original(function, signatures, arch, *given, **named)
        compiled.extend((one.symbol, arch) for one in made.kernel_signatures)
        return made

    restore = wrap(_compile, "compile_tile", compile_tile)
    try:
        launch_all()
    finally:
        restore()
    assert len(driver.launches) == len(compiled)
    found = {kernel._pyfunc.__name__: kernel for kernel in kernels}
    return {symbol: module_of(found[symbol.rpartition("_K")[0]], symbol, arch) for symbol, arch in compiled}
