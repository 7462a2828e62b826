// A half-precision GEMM as CUDA authors write it: cp.async into two stages, ldmatrix, mma.sync, an mbarrier and a shuffle.
#include <cuda/barrier>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

constexpr int M = 64, N = 64, K = 32;

__device__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

extern "C" __global__ void __launch_bounds__(128) gemm(const half *a, const half *b, float *c, int n, int k) {
    __shared__ __align__(16) half ta[2][M][K], tb[2][N][K];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.y * M, col = blockIdx.x * N;
    float sum[8][4] = {};
    auto fetch = [&](int stage, int at) {
        for (int i = threadIdx.x; i < M * K / 8; i += 128) {
            int r = i / (K / 8), x = i % (K / 8) * 8;
            __pipeline_memcpy_async(&ta[stage][r][x], &a[(row + r) * k + at + x], 16);
            __pipeline_memcpy_async(&tb[stage][r][x], &b[(col + r) * k + at + x], 16);
        }
        __pipeline_commit();
    };
    fetch(0, 0);
    for (int at = 0; at < k; at += K) {
        int stage = at / K & 1;
        if (at + K < k) fetch(stage ^ 1, at + K);
        __pipeline_wait_prior(at + K < k ? 1 : 0);
        __syncthreads();
        for (int x = 0; x < K; x += 16) {
            unsigned fa[4], fb[2];
            unsigned from = shared_address(&ta[stage][warp * 16 + lane % 16][x + lane / 16 * 8]);
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                         : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3]) : "r"(from));
#pragma unroll
            for (int j = 0; j < 8; j++) {
                unsigned of = shared_address(&tb[stage][j * 8 + lane % 8][x + lane / 8 % 2 * 8]);
                asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                             : "=r"(fb[0]), "=r"(fb[1]) : "r"(of));
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9},"
                             " {%0,%1,%2,%3};"
                             : "+f"(sum[j][0]), "+f"(sum[j][1]), "+f"(sum[j][2]), "+f"(sum[j][3])
                             : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float *out = &c[(row + warp * 16 + lane / 4) * n + col + j * 8 + lane % 4 * 2];
        out[0] = sum[j][0];
        out[1] = sum[j][1];
        out[8 * n] = sum[j][2];
        out[8 * n + 1] = sum[j][3];
    }
}

// One thread fetches a tile with a bulk copy, the others wait at its mbarrier.
extern "C" __global__ void bulk(const float *in, float *out, int n) {
    __shared__ __align__(16) float tile[256];
    __shared__ cuda::barrier<cuda::thread_scope_block> ready;
    if (threadIdx.x == 0) init(&ready, blockDim.x);
    __syncthreads();
    cuda::barrier<cuda::thread_scope_block>::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::device::memcpy_async_tx(tile, in + blockIdx.x * 256, cuda::aligned_size_t<16>(sizeof tile), ready);
        token = cuda::device::barrier_arrive_tx(ready, 1, sizeof tile);
    } else {
        token = ready.arrive();
    }
    ready.wait(std::move(token));
    float sum = 0;
    for (int i = threadIdx.x; i < 256; i += 32) sum += tile[i];
    for (int i = 16; i; i >>= 1) sum += __shfl_xor_sync(~0u, sum, i);
    if (threadIdx.x == 0) atomicAdd(out, sum * n);
}
