"""Multiply two matrices in tiles, scale by a constant filter and sum the rows: three kernels written for CuPy.

Needs a GPU and CuPy. Run: python examples/auto/cupy_script.py [size] [rounds]
"""

import hashlib
import sys

import cupy
import numpy as np

MATMUL = cupy.RawKernel(
    r"""
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float ta[32][33], tb[32][33];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * 32 + y, col = blockIdx.x * 32 + x;
    float sum = 0;
    for (int k = 0; k < n; k += 32) {
        ta[y][x] = a[row * n + k + x];
        tb[y][x] = b[(k + y) * n + col];
        __syncthreads();
        for (int i = 0; i < 32; i++) sum += ta[y][i] * tb[i][x];
        __syncthreads();
    }
    c[row * n + col] = sum;
}
""",
    "matmul",
)

ROWS = cupy.RawModule(
    code=r"""
__constant__ float taps[4];

template <typename T>
__global__ void smooth(const T* in, T* out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        T sum = 0;
        for (int k = 0; k < 4; k++) sum += taps[k] * in[i + k < n ? i + k : n - 1];
        out[i] = sum;
    }
}

template <typename T>
__global__ void row_sums(const T* in, T* out, int n) {
    T sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += in[blockIdx.x * n + i];
    for (int k = 16; k; k >>= 1) sum += __shfl_xor_sync(~0u, sum, k);
    if (threadIdx.x % 32 == 0) atomicAdd(&out[blockIdx.x], sum);
}
""",
    name_expressions=("smooth<float>", "row_sums<float>"),
)


def main() -> None:
    if not cupy.is_available():
        sys.exit("this example needs a GPU")
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    a = cupy.asarray(np.random.default_rng(1).random((n, n), np.float32))
    b = cupy.asarray(np.random.default_rng(2).random((n, n), np.float32))
    c, smoothed, sums = cupy.empty_like(a), cupy.empty_like(a), cupy.zeros(n, np.float32)
    taps = cupy.ndarray(4, np.float32, ROWS.get_global("taps"))
    taps[...] = cupy.asarray([0.4, 0.3, 0.2, 0.1], np.float32)
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    for _ in range(rounds):
        MATMUL((n // 32, n // 32), (32, 32), (a, b, c, np.int32(n)))
        ROWS.get_function("smooth<float>")((256,), (256,), (c, smoothed, np.int32(n * n)))
        sums[...] = 0
        ROWS.get_function("row_sums<float>")((n,), (32,), (smoothed, sums, np.int32(n)))
    result = cupy.asnumpy(sums)
    expected = cupy.asnumpy(a).astype(np.float64) @ cupy.asnumpy(b).astype(np.float64)
    flat = np.pad(expected.reshape(-1), (0, 3), mode="edge")
    expected = sum(w * flat[k : k + n * n] for k, w in enumerate((0.4, 0.3, 0.2, 0.1))).reshape(n, n).sum(axis=1)
    error = float(np.abs(result - expected).max() / np.abs(expected).max())
    print(f"n {n}: largest relative error {error:.1e}, sums {hashlib.sha256(result.tobytes()).hexdigest()}")
    if error > 1e-4:
        sys.exit("the result is wrong")


if __name__ == "__main__":
    main()
