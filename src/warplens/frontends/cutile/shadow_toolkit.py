"""A folder that looks like the one of cuTile's compiler, whose ptxas keeps what it is given.

`tileiras` runs the ptxas in its own folder, and finds its libraries from there.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from warplens.errors import WarplensError

_TIMEOUT_S = 300
_HOST_CODE = "--nv-host="
_SCRIPT = """#!/bin/sh
printf '%s\\n' "$@" > {kept}/arguments
for argument in "$@"; do
  case "$argument" in
    *.ptx) cp "$argument" {kept}/module.ptx ;;
    {host}*) cp "${{argument#{host}}}" {kept}/host.o ;;
  esac
done
exec {ptxas} "$@"
"""


@dataclass(frozen=True)
class TileModule:
    """What tileiras handed to ptxas for one module."""

    ptx: str
    ptxas: str
    arguments: tuple[str, ...]
    host_code: bytes

    def assemble(self, text: str) -> bytes:
        """The machine code of another PTX of this module, with the same options and the same host code."""
        with tempfile.TemporaryDirectory(prefix="warplens-cutile-") as folder:
            source, output, host = (Path(folder) / name for name in ("woven.ptx", "woven.cubin", "host.o"))
            source.write_text(text)
            host.write_bytes(self.host_code)
            words: list[str] = []
            for word in self.arguments:
                before = words[-1] if words else ""
                if word.endswith(".ptx"):
                    words.append(str(source))
                elif before == "-o":
                    words.append(str(output))
                else:
                    words.append(f"{_HOST_CODE}{host}" if word.startswith(_HOST_CODE) else word)
            try:
                done = subprocess.run([self.ptxas, *words], capture_output=True, text=True, timeout=_TIMEOUT_S)
                return output.read_bytes()
            except FileNotFoundError as error:
                said = done.stderr.strip().splitlines()[-1:] if error.filename == str(output) else []
                raise WarplensError(said[0] if said else f"{self.ptxas} is not there") from None
            except (OSError, subprocess.SubprocessError) as error:
                raise WarplensError(f"{self.ptxas}: {error}") from None


class ShadowToolkit:
    """The folder, made once for a process."""

    def __init__(self, tileiras: str, search: str) -> None:
        real = Path(tileiras).resolve()
        ptxas = shutil.which("ptxas", path=os.pathsep.join([str(real.parent), search]))
        if ptxas is None:
            raise WarplensError(f"there is no ptxas next to {real}")
        self.ptxas, self._root = ptxas, Path(tempfile.mkdtemp(prefix="warplens-tileiras-"))
        atexit.register(shutil.rmtree, self._root, ignore_errors=True)
        tools, self._kept = self._root / "bin", self._root / "kept"
        tools.mkdir()
        self._kept.mkdir()
        for entry in real.parent.parent.iterdir():
            if entry.name not in ("bin", "kept"):
                (self._root / entry.name).symlink_to(entry)
        self.tileiras = str(tools / real.name)
        try:
            os.link(real, self.tileiras)  # it asks the system for its own path, which a symbolic link would not change
        except OSError:
            shutil.copy2(real, self.tileiras)
        wrapper = tools / "ptxas"
        kept, host = shlex.quote(str(self._kept)), _HOST_CODE
        wrapper.write_text(_SCRIPT.format(kept=kept, host=host, ptxas=shlex.quote(ptxas)))
        wrapper.chmod(0o755)

    def latest(self) -> TileModule:
        """What ptxas was given last."""
        try:
            text = (self._kept / "module.ptx").read_text(errors="replace")
            arguments = (self._kept / "arguments").read_text().splitlines()
            host = self._kept / "host.o"
            return TileModule(text, self.ptxas, tuple(arguments), host.read_bytes() if host.exists() else b"")
        except OSError:
            raise WarplensError("tileiras did not run ptxas") from None
