// A step of Adam: new weights and moments of a model's tensors, a row of blocks for each tensor of the launch.
#include <warplens.cuh>

extern "C" __global__ void __launch_bounds__(256)
    adam_step(const float* weights, const float* gradients, const float* firsts, const float* seconds, float* out,
              int size, wl::Buffer prof) {
  wl::Kernel k(prof);
  const int i = blockIdx.x * 256 + threadIdx.x, at = blockIdx.y * size + i;
  WL_REGION("step");
  const float slope = gradients[at];
  const float first = 0.9f * firsts[at] + 0.1f * slope, second = 0.999f * seconds[at] + 0.001f * slope * slope;
  float* const to = out + 3 * blockIdx.y * size + i;
  to[0] = weights[at] - 0.001f * first / (sqrtf(second) + 1e-8f);
  to[size] = first;
  to[2 * size] = second;
}
