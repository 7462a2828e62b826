"""ptxas in the place of the CUDA driver, to choose the twin of an intercepted kernel without a GPU."""

from __future__ import annotations

import math
import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from warplens.driver.kernel_arguments import Shape
from warplens.driver.limits import SM_LIMITS
from warplens.driver.theoretical_occupancy import blocks_per_sm
from warplens.errors import WarplensError
from warplens.frontends.intercept import interceptor, woven_module
from warplens.frontends.intercept.interceptor import Interceptor, PlainKernel
from warplens.frontends.intercept.woven_module import Twin
from warplens.launch.thinning import Thinning
from warplens.options import Options
from warplens.ptx.kernel_alone import kernel_alone
from warplens.ptx.tree import parse
from warplens.weave.fit.ptxas_output import read_log

THREADS = 256
"""Threads of a block, where the kernel does not say."""
_CAPABILITY = "9.0"
_SHARED = re.compile(r"(\d+) bytes smem")
_TARGET = re.compile(r"^\.target\s+(\w+)", re.M)


@dataclass
class PtxasDriver:
    """As much of a driver as the choice of a twin asks for. A loaded kernel is what ptxas printed about it."""

    loaded: list[str] = field(default_factory=list)

    def assemble(self, text: str) -> bytes:
        target = _TARGET.search(text)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.ptx"
            path.write_text(text)
            command = ["ptxas", "-v", f"-arch={target[1] if target else 'sm_90'}", path, "-o", "/dev/null"]
            done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise WarplensError(f"ptxas: {done.stderr.strip().partition(chr(10))[0]}")
        return done.stderr.encode()

    def load_library(self, image: bytes) -> int:
        self.loaded.append(image.decode())
        return len(self.loaded) - 1

    def kernel(self, library: int, symbol: str) -> int:
        return library

    def kernel_function(self, kernel: int) -> int:
        return kernel

    def library_variable(self, library: int, name: str) -> int:
        return 1

    def copy_settings(self, source: int, target: int) -> None:
        pass

    def device(self) -> Any:
        return SimpleNamespace(capability=_CAPABILITY)

    def device_index(self) -> int:
        return 0

    def resources(self, function: int) -> dict[str, int]:
        found, shared = read_log(self.loaded[function]), _SHARED.search(self.loaded[function])
        return {
            "registers": found.registers, "local_bytes": found.spills,
            "shared_bytes": int(shared[1]) if shared else 0,
        }  # fmt: skip

    def active_blocks(self, function: int, threads: int, shared: int) -> int:
        taken = self.resources(function)
        return blocks_per_sm(SM_LIMITS[_CAPABILITY], threads, taken["registers"], taken["shared_bytes"] + shared)


def chosen_twin(text: str, symbol: str, options: Options) -> Twin:
    """The twin that an intercepted launch of a kernel would run; raises Unavailable if it would run plain."""
    driver, module = PtxasDriver(), parse(text)
    (entry,) = (one for one in module.entries if one.name == symbol)
    plain = driver.load_library(driver.assemble(kernel_alone(module, symbol).text()))
    given = entry.performance.get("reqntid") or entry.performance.get("maxntid") or (THREADS,)
    kernel = PlainKernel(symbol, plain, lambda: text, assemble=driver.assemble)
    session: Any = SimpleNamespace(options=options)
    with (
        mock.patch.object(interceptor, "driver", return_value=driver),
        mock.patch.object(woven_module, "driver", return_value=driver),
    ):
        shape = Shape((1, 1, 1), (math.prod(given), 1, 1))
        return Interceptor(session)._find(kernel, shape, False, Thinning())
