"""What warplens adds to launches that go through C: kernels launched from C++, and those of the CuTe DSL.

    PYTHONPATH=src:. python -m benchmarks.lib.hook_cost

The driver is a library that does nothing (idle_libcuda.c), in a process of its own. Nanoseconds of processor time per
launch unless it says "wall", the quickest of several rounds.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

CALLS = int(os.environ.get("WARPLENS_BENCH_CALLS", 1_000_000))
RECORDED_CALLS, ROUNDS = min(CALLS, 2_000), 7
GRID, THREADS = 8, 128
_CALLER = """
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>
typedef int (*launcher)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                        void **);
typedef struct { long calls; void *function; double took; } job;
static void *run(void *given) {
    job *one = given;
    launcher launch = (launcher)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel");
    struct timespec start, end;
    long a = 1, b = 2;
    void *params[] = {&a, &b};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    for (long i = 0; i < one->calls; i++) launch(one->function, 8, 1, 1, 128, 1, 1, 0, (void *)7, params, 0);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    one->took = ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / one->calls;
    return 0;
}
double nanoseconds(long calls, void *function) {
    job one = {calls, function};
    return run(&one), one.took;
}
double wall_nanoseconds_in_thread(long calls, void *function) {
    job one = {calls, function};
    pthread_t thread;
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    pthread_create(&thread, 0, run, &one);
    pthread_join(thread, 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / calls;
}
double nanoseconds_in_thread(long calls, void *function) {
    job one = {calls, function};
    pthread_t thread;
    pthread_create(&thread, 0, run, &one);
    pthread_join(thread, 0);
    return one.took;
}
"""


def measure(*parts: str) -> dict[str, Any]:
    """Nanoseconds per launch from C++ ("cpp") and of the CuTe DSL ("cute"), where it is installed."""
    parts = parts or ("cpp", *(["cute"] if find_spec("cutlass") else []))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "caller.c").write_text(_CALLER)
        idle = Path(__file__).with_name("idle_libcuda.c")
        for source, name in ((idle, "libcuda.so.1"), (f"{folder}/caller.c", "caller.so")):
            command = [
                "gcc",
                "-O2",
                "-w",
                "-shared",
                "-fPIC",
                "-pthread",
                str(source),
                "-o",
                f"{folder}/{name}",
                "-ldl",
            ]
            subprocess.run(command, check=True)
        environment = {**os.environ, "LD_LIBRARY_PATH": folder, "CUTE_DSL_LIBS": f"{folder}/libcuda.so.1"}
        found: dict[str, Any] = {}
        for part in parts:
            command = [sys.executable, "-m", "benchmarks.lib.hook_cost", part, f"{folder}/caller.so"]
            done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            found |= json.loads(done.stdout)
    return {**found, "load": os.getloadavg()[0]}


def _cpp(path: str) -> dict[str, float]:
    from warplens.driver.call_hooks import call_hooks

    caller: Any = ctypes.CDLL(path)
    for name in ("nanoseconds", "nanoseconds_in_thread", "wall_nanoseconds_in_thread"):
        getattr(caller, name).restype, getattr(caller, name).argtypes = (
            ctypes.c_double,
            [ctypes.c_long, ctypes.c_void_p],
        )

    def best(way: str = "nanoseconds", calls: int = CALLS) -> float:
        return round(min(getattr(caller, way)(calls, 4096) for _ in range(ROUNDS)), 1)

    without = best()
    hooks, reason = call_hooks()
    if hooks is None:
        raise SystemExit(reason)
    idle = best()
    stop = hooks.listen(lambda call: None)
    hooks.close(4096, None)
    closed = best()
    stop()
    hooks.reopen()
    ways = {
        "recorded": "nanoseconds",
        "recorded in a thread of C++": "nanoseconds_in_thread",
        "recorded in a thread of C++, wall": "wall_nanoseconds_in_thread",
    }
    recorded = {name: _recorded(hooks, functools.partial(best, way, RECORDED_CALLS)) for name, way in ways.items()}
    return {"without hooks": without, "no profile": idle, "quota used up": closed, **recorded}


def _recorded(hooks: Any, timed: Callable[[], float]) -> float:
    """What `timed` finds in a profile that records every launch, without bringing the records home."""
    from benchmarks.host_launch import Intercepted, running
    from warplens.frontends.driver_calls.frontend import DriverCalls
    from warplens.frontends.intercept.interceptor import PlainKernel
    from warplens.profiling.profile import Profile

    class Known(DriverCalls):
        """Has a twin of its one kernel already."""

        def _kernel(self, *given: Any) -> PlainKernel:
            return PlainKernel("k", 4096, str)

        def _count(self, kernel: PlainKernel) -> int:
            return 2

    session = Profile(records_per_warp=16, auto=True)
    with running(session):
        stops = Known(Intercepted(session), hooks).install()
        session.buffers.engine().collector.close()
        found = timed()
        while stops:
            stops.pop()()
    assert session.variants.counts()["k"] == ROUNDS * RECORDED_CALLS
    session.collect()
    return found


def _cute(path: str) -> dict[str, float]:
    """A compiled function of the CuTe DSL: plain, done with, and recorded."""
    os.environ["CUTE_DSL_ARCH"] = "sm_90a"
    from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitCompiledFunction

    from benchmarks.lib.cute_doubled import compiled_in_place
    from warplens.profiling.profile import Profile

    CudaDialectJitCompiledFunction.num_devices = 1
    with tempfile.TemporaryDirectory() as folder:
        call = compiled_in_place(folder)

        def best() -> float:
            rounds = []
            for _ in range(ROUNDS):
                start = time.thread_time_ns()
                for _ in range(RECORDED_CALLS):
                    call()
                rounds.append((time.thread_time_ns() - start) / RECORDED_CALLS)
            return round(min(rounds), 1)

        call()
        found = {"CuTe DSL, plain": best()}
        for name, launches in (("quota used up", 1), ("recorded", None)):
            profile = Profile(records_per_warp=16, auto=True, launches=launches)
            profile.resume()
            for _ in range(100):
                call()
            for engine in profile.buffers.engines():
                engine.collector.close()
            found[f"CuTe DSL, {name}"] = best()
            profile.pause()
            profile.collect()
            assert list(profile.seen.values()) == [100 + ROUNDS * RECORDED_CALLS], profile.seen
        return {**found, "CuTe DSL, plain again": best()}


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(json.dumps(measure(), indent=1))
    else:
        print(json.dumps({"cpp": _cpp, "cute": _cute}[sys.argv[1]](sys.argv[2])))
