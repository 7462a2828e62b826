"""Kernels that do not end, on a real GPU: each is named within a second of a signal, while it still runs.

A Triton kernel with one stuck block, a CUDA kernel with a lost mbarrier arrival, and a deadlock between two blocks. All
run in a process of its own under `warplens run`, which gets Ctrl-C or SIGTERM while its main thread is blocked in a
synchronisation; the first one also under `--watch`, ended by it and going on after it. Every kernel gives up by itself
after 20 seconds. Writes hangs.json and the traces to a folder, and prints the same JSON.

Run: PYTHONPATH=src python -m benchmarks.hangs --out FOLDER [--dry-run]
`--dry-run` needs no GPU: the launches are those of a driver whose kernel never ends.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STUCK, BLOCKS, GIVE_UP_S = 5, 132, 20
SETTLE_S = 1.0
LOST = r"""
__device__ unsigned shared_address(const void *pointer) { return (unsigned)__cvta_generic_to_shared(pointer); }
__device__ void wait(unsigned barrier, unsigned parity) {
    asm volatile(
        "{\n\t.reg .pred done;\n"
        "WAIT:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t@done bra DONE;\n\tbra WAIT;\n"
        "DONE:\n\t}" ::"r"(barrier), "r"(parity) : "memory");
}
__device__ void arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ long long now() {
    long long ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}
extern "C" __global__ void lost_arrival(float *out, int tiles, int stuck, long long give_up_ns) {
    __shared__ __align__(8) unsigned long long full, empty;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full)) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 3;" ::"r"(shared_address(&empty)) : "memory");
    }
    __syncthreads();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool loses = blockIdx.x == stuck;
    if (warp == 0) {
        if (lane == 0) {
            for (int t = 0; t < tiles; ++t) {
                wait(shared_address(&empty), (t + 1) & 1);
                if (loses && t == tiles / 2) break;
                arrive(shared_address(&full));
            }
            if (loses) {  // so that the kernel ends at last
                const long long end = now() + give_up_ns;
                while (now() < end) __nanosleep(1000);
                for (int t = tiles / 2; t < tiles; ++t) {
                    arrive(shared_address(&full));
                    wait(shared_address(&empty), t & 1);
                }
            }
        }
        return;
    }
    float sum = 0;
    for (int t = 0; t < tiles; ++t) {
        wait(shared_address(&full), t & 1);
        sum += t;
        __syncwarp();
        if (lane == 0) arrive(shared_address(&empty));
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
"""
DEADLOCK = r"""
#include <warplens.cuh>
__device__ long long now() {
    long long ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}
__device__ void take(int *lock, long long end) {
    if (threadIdx.x == 0) while (atomicCAS(lock, 0, 1) && now() < end) __nanosleep(200);
    __syncthreads();
}
extern "C" __global__ void deadlock(int *locks, int *ready, long long give_up_ns, wl::Buffer prof) {
    wl::Kernel k(prof);
    const long long end = now() + give_up_ns;
    const int other = blockIdx.x ^ 1;
    {
        WL_REGION("take own lock");
        take(&locks[blockIdx.x], end);
        if (threadIdx.x == 0 && blockIdx.x < 2) {
            atomicAdd(ready, 1);
            while (atomicAdd(ready, 0) < 2 && now() < end) __nanosleep(200);
        }
        __syncthreads();
    }
    if (blockIdx.x < 2) {
        WL_VALUE("wanted lock", other);
        WL_REGION("take the other lock");
        take(&locks[other], end);
    }
}
"""


def stuck_kernel() -> Any:
    import triton
    import triton.language as tl

    import warplens.triton as wlt

    @triton.jit
    def stuck_block(out, flag, stuck, limit, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        block = tl.program_id(0)
        at = block * BLOCK + tl.arange(0, BLOCK)
        with wlt.region("work"):
            x = tl.sum(tl.load(out + at), 0)
        wlt.value("turn", block)
        if block == stuck:
            with wlt.region("wait for the flag"):
                turns = 0
                seen = tl.atomic_add(flag, 0)
                while (seen == 0) & (turns < limit):
                    seen = tl.atomic_add(flag, 0)
                    turns += 1
                x += turns
        with wlt.region("store"):
            tl.store(out + at, x + tl.zeros([BLOCK], tl.float32))

    return stuck_block


def triton_stuck() -> None:
    import torch

    stuck_block = stuck_kernel()
    out = torch.zeros(BLOCKS * 256, device="cuda")
    flag = torch.zeros(1, device="cuda", dtype=torch.int32)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    stuck_block[(BLOCKS,)](out, flag, STUCK, 20_000_000, BLOCK=256)
    if os.environ.get("HANGS_RELEASE"):

        def release() -> None:
            time.sleep(float(os.environ["HANGS_RELEASE"]))
            with torch.cuda.stream(side):
                flag.fill_(1)

        threading.Thread(target=release, daemon=True).start()
    print("launched", flush=True)
    torch.cuda.synchronize()


def lost_arrival() -> None:
    import cupy
    import numpy as np

    out = cupy.zeros(BLOCKS * 128, cupy.float32)
    kernel = cupy.RawModule(code=LOST, options=("-lineinfo",)).get_function("lost_arrival")
    cupy.cuda.runtime.deviceSynchronize()
    kernel((BLOCKS,), (128,), (out, np.int32(8), np.int32(STUCK), np.int64(GIVE_UP_S * 10**9)))
    print("launched", flush=True)
    cupy.cuda.runtime.deviceSynchronize()


def deadlock() -> None:
    import torch

    import warplens.cuda as wlcu

    locks, ready = (torch.zeros(BLOCKS, device="cuda", dtype=torch.int32) for _ in range(2))
    kernel = wlcu.compile(DEADLOCK)["deadlock"]
    torch.cuda.synchronize()
    kernel[BLOCKS, 128](locks, ready, GIVE_UP_S * 10**9)
    print("launched", flush=True)
    torch.cuda.synchronize()


def fake() -> None:
    from tests.support.hanging_kernel import HangingDriver, launch_hanging
    from warplens.driver import libcuda

    driver = HangingDriver()
    libcuda.driver = lambda: driver  # type: ignore[assignment]
    launch_hanging(driver)
    print("launched", flush=True)
    if os.environ.get("HANGS_RELEASE"):
        time.sleep(float(os.environ["HANGS_RELEASE"]))
        driver.released.set()
        return
    lib, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    lib.pthread_mutex_lock(mutex)
    lib.pthread_mutex_lock(mutex)


KERNELS = {"triton_stuck": triton_stuck, "lost_arrival": lost_arrival, "deadlock": deadlock, "fake": fake}
Case = tuple[str, str, list[str], int, list[str]]
"""The kernel, its name in results, options of `run`, the signal (0: none), and what the report must say."""
CASES: list[Case] = [
    ("triton_stuck", "triton_sigint", [], signal.SIGINT, ["of block 5: in `wait for the flag`", "`turn` = 5"]),
    ("lost_arrival", "cuda_lost_arrival", ["--auto", "--watch", "10m"], signal.SIGTERM,
     ["warps 1-3 of block 5: in", "phase 0: warp 0 has"]),
    ("deadlock", "cuda_deadlock", ["--watch", "10m"], signal.SIGINT,
     ["of blocks 0-1: in `take the other lock`", "`wanted lock` = 0 to 1"]),
    ("triton_stuck", "triton_watch_kill", ["--watch", "2s", "--on-hang", "kill"], 0, ["in `wait for the flag`"]),
    ("triton_stuck", "triton_watch_continue", ["--watch", "1s"], 0, ["in `wait for the flag`"]),
]  # fmt: skip
DRY: list[Case] = [
    ("fake", "sigint", [], signal.SIGINT, ["warp 4 has not arrived"]),
    ("fake", "watch_kill", ["--watch", "1s", "--on-hang", "kill"], 0, ["warp 4 has not arrived"]),
    ("fake", "watch_continue", ["--watch", "1s"], 0, ["warp 4 has not arrived"]),
]


def measure(case: Case, folder: Path) -> dict[str, Any]:
    """Run one case; return how long the report took after the signal, and whether it says what it must."""
    kernel, name, options, number, wanted = case
    trace = folder / f"{name}.warplens"
    goes_on = name.endswith("continue")
    words = ["-m", "warplens", "run", *options, "-o", str(trace), "--force", str(ROOT / "benchmarks" / "hangs.py")]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    more = {"HANGS_RELEASE": "4"} if goes_on else {}
    process = subprocess.Popen(
        [sys.executable, *words, "--kernel", kernel], cwd=folder, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths, **more},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    lines: list[tuple[float, str]] = []

    def read(stream: Any) -> None:
        lines.extend((time.monotonic(), line) for line in stream)

    reader = threading.Thread(target=read, args=(process.stderr,), daemon=True)
    reader.start()
    began = next((time.monotonic() for line in process.stdout if "launched" in line), time.monotonic())
    if number and process.poll() is None:
        time.sleep(SETTLE_S)
        began = time.monotonic()
        process.send_signal(number)
        until = began + 15
        while time.monotonic() < until and not any("is ended in" in line for _, line in list(lines)):
            time.sleep(0.01)
        if process.poll() is None:
            process.send_signal(number)
    try:
        code = process.wait(timeout=40)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    reader.join(timeout=5)
    told = [at for at, line in lines if "did not end" in line]
    said = "".join(line for _, line in lines)
    expected = 128 + number if number else 0 if goes_on else 1
    named = told[0] - began if told else None
    return {
        "exit_code": code,
        "named_s": named,
        "within_a_second": named is not None and named < 1 + (0 if number else 4),
        "says": {text: text in said for text in wanted},
        "trace_written": trace.exists(),
        "passed": code == expected and all(text in said for text in wanted) and trace.exists(),
        "copy": _copy_seconds(trace) if trace.exists() else None,
        "report": [line.rstrip() for _, line in lines][:40],
    }


def _copy_seconds(trace: Path) -> Any:
    import warplens as wl

    return [info.cost.get("finalize_ns") for info in wl.load(trace).meta.launches]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for hangs.json and the traces")
    parser.add_argument("--kernel", choices=KERNELS, help="only launch this kernel and wait for it")
    parser.add_argument("--dry-run", action="store_true", help="what can be checked without a GPU")
    asked = parser.parse_args()
    if asked.kernel:
        KERNELS[asked.kernel]()
        return
    if asked.out is None:
        parser.error("--out is required")
    folder = asked.out.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for case in DRY if asked.dry_run else CASES:
        began = time.monotonic()
        results[case[1]] = measure(case, folder) | {"seconds": round(time.monotonic() - began, 1)}
        print(f"{case[1]}: {results[case[1]]['passed']}, {results[case[1]]['seconds']} s", file=sys.stderr, flush=True)
        (folder / "hangs.json").write_text(json.dumps(results, indent=1))
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
