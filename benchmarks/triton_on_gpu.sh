#!/bin/bash
# Everything about Triton that needs a GPU, in one command: benchmarks/triton_on_gpu.sh OUT
# Tests and the sanitizer run first and together, the overhead benchmark alone.
out=$1
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here" || exit 1
export PYTHONPATH=$here/src:$here TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$(mktemp -d)}
mkdir -p "$out"
sanitize() {
    compute-sanitizer --tool memcheck --error-exitcode 9 python3 "examples/triton/$1.py" "$(mktemp -d)/t.warplens" \
        >"$out/sanitizer_$1.txt" 2>&1
    echo "exit $?" >>"$out/sanitizer_$1.txt"
}
sanitize vector_add &
sanitize softmax &
timeout 110 python3 -m pytest tests/gpu/test_triton_kernels.py -q --tb=short --durations=12 >"$out/tests.txt" 2>&1
tail -3 "$out/tests.txt"
wait
tail -n 2 -q "$out"/sanitizer_*.txt
timeout 60 python3 tests/golden/make_triton_capture.py "$out" 2>&1 | tail -2
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader >"$out/device.txt"
timeout "${BENCH_SECONDS:-300}" python3 -m benchmarks.triton_overhead --ablation --repeats 9 --seconds 15 \
    >"$out/overhead.json" 2>"$out/overhead.txt"
cat "$out/overhead.txt"
