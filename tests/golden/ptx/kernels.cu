// Small kernels whose PTX the parser, the weaver and the interpreter are tested on.
#ifndef SMALL  // with -G these headers alone make half a megabyte
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#endif

__constant__ float weights[4] = {1.f, 2.f, 3.f, 4.f};
__device__ unsigned long long visits = 7;
__device__ int table[2][3] = {{1, 2, 3}, {4, 5, 6}};

__device__ __noinline__ float weighted(float x, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x * weights[i & 3];
    return sum;
}

extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n) {
    asm volatile("// @warplens B add");
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
    asm volatile("// @warplens E add");
}

extern "C" __global__ void __launch_bounds__(256) softmax(const float *in, float *out, int cols) {
    __shared__ float partial[8];
    const float *row = in + (size_t)blockIdx.x * cols;
    float top = -INFINITY;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) top = fmaxf(top, row[i]);
    for (int k = 16; k; k >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, k));
    if ((threadIdx.x & 31) == 0) partial[threadIdx.x >> 5] = top;
    __syncthreads();
    for (int i = 0; i < blockDim.x / 32; i++) top = fmaxf(top, partial[i]);
    __syncthreads();
    float sum = 0;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += __expf(row[i] - top);
    for (int k = 16; k; k >>= 1) sum += __shfl_down_sync(~0u, sum, k);
    if ((threadIdx.x & 31) == 0) partial[threadIdx.x >> 5] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < blockDim.x / 32; i++) sum += partial[i];
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        out[(size_t)blockIdx.x * cols + i] = __expf(row[i] - top) / sum;
}

extern "C" __global__ void reduce(const float *in, float *out, int n) {
    extern __shared__ float scratch[];
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += weighted(in[i], i & 3);
    scratch[threadIdx.x] = v;
    __syncthreads();
    for (int k = blockDim.x / 2; k; k >>= 1) {
        if (threadIdx.x < k) scratch[threadIdx.x] += scratch[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        atomicAdd(out, scratch[0]);
        atomicAdd(&visits, 1ull);
    }
}

extern "C" __global__ void tiled_matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float ta[16][17], tb[16][17];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        ta[y][x] = a[row * n + k + x];
        tb[y][x] = b[(k + y) * n + col];
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += ta[y][i] * tb[i][x];
        __syncthreads();
    }
    c[row * n + col] = sum;
}

// Lanes leave loops at different times, take every case of a switch, and return early.
extern "C" __global__ void divergent(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = in[i], steps = 0;
    while (v > 1) {
        v = (v & 1) ? 3 * v + 1 : v / 2;
        steps++;
        if (steps > 200) return;
    }
    switch (i & 7) {
        case 0: steps += table[0][i % 3]; break;
        case 1: steps *= 3; break;
        case 2: steps -= 100; break;
        case 3: steps ^= 0x55; break;
        case 4: steps = __popc(steps); break;
        case 5: steps = __clz(steps); break;
        case 6: steps = __brev(steps); break;
        default: steps = -steps;
    }
    unsigned members = __match_any_sync(__activemask(), steps & 3);
    out[i] = steps + (__ballot_sync(members, i & 1) ? 1000 : 0);
}

#ifndef SMALL
extern "C" __global__ void halves(const __half *a, const __nv_bfloat16 *b, __half2 *c, __nv_bfloat16 *d, double *e, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half x = a[i];
    __nv_bfloat16 y = b[i];
    c[i] = __hfma2(__half2half2(x), __floats2half2_rn(2.f, 0.5f), __floats2half2_rn(1.f, __half2float(x)));
    d[i] = __hadd(y, __float2bfloat16(1.5f)) * y;
    e[i] = sqrt((double)__half2float(x) * __half2float(x) + 1.0) + (double)(long long)(1e6f * __bfloat162float(y));
}

extern "C" __global__ void async_copy(const float4 *in, float4 *out) {
    __shared__ float4 stage[2][64];
    __pipeline_memcpy_async(&stage[0][threadIdx.x], &in[threadIdx.x], 16);
    __pipeline_commit();
    __pipeline_memcpy_async(&stage[1][threadIdx.x], &in[64 + threadIdx.x], 16);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    float4 v = stage[0][63 - threadIdx.x];
    __pipeline_wait_prior(0);
    __syncthreads();
    float4 w = stage[1][63 - threadIdx.x];
    out[threadIdx.x] = make_float4(v.x + w.x, v.y + w.y, v.z + w.z, v.w + w.w);
}
#endif
