"""What the hooks in front of the driver add to a launch that Python has nothing to do with: a driver that does nothing,
called by C in a loop, for benchmarks/reach.py."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CALLS, ROUNDS = 1_000_000, 7
_DRIVER = """
int cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned s, void *t,
                   void **p, void **x) { return 0; }
int cuCtxGetCurrent(void **c) { *c = 0; return 0; }
"""
_CALLER = """
#include <dlfcn.h>
#include <time.h>
typedef int (*launcher)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                        void **);
double nanoseconds(long calls, void *function) {
    launcher launch = (launcher)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel");
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (long i = 0; i < calls; i++) launch(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / calls;
}
"""


def measure() -> dict[str, float]:
    """Nanoseconds per launch: without hooks, with hooks and no profile, in a profile that is done with the kernel."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("libcuda.so.1", _DRIVER), ("caller.so", _CALLER)):
            (Path(folder) / "source.c").write_text(text)
            command = ["gcc", "-O2", "-shared", "-fPIC", f"{folder}/source.c", "-o", f"{folder}/{name}", "-ldl"]
            subprocess.run(command, check=True)
        environment = {**os.environ, "LD_LIBRARY_PATH": folder}
        command = [sys.executable, "-m", "benchmarks.lib.hook_cost", f"{folder}/caller.so"]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _measure_here(path: str) -> dict[str, float]:
    from warplens.driver.call_hooks import call_hooks

    caller: Any = ctypes.CDLL(path)
    caller.nanoseconds.restype, caller.nanoseconds.argtypes = ctypes.c_double, [ctypes.c_long, ctypes.c_void_p]

    def best() -> float:
        return round(min(caller.nanoseconds(CALLS, 4096) for _ in range(ROUNDS)), 1)

    without = best()
    hooks, reason = call_hooks()
    if hooks is None:
        raise SystemExit(reason)
    idle = best()
    stop = hooks.listen(lambda call: None)
    hooks.close(4096, None)
    closed = best()
    stop()
    return {"without hooks": without, "no profile": idle, "quota used up": closed}


if __name__ == "__main__":
    print(json.dumps(_measure_here(sys.argv[1])))
