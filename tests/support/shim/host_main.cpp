// What programs do with wl::Capture, through the shim: host_main WHAT OUT. What is thrown is printed, with exit code 1.
#define WARPLENS_SHIM 1
#include "cuda_shim.h"
#include <warplens_host.h>

#include <iostream>
#include <string>

// Copies of both warps are in flight at once with the same tag; x ends inside y, `left` never.
__global__ void crossing(wl::Buffer prof) {
  wl::Kernel k(prof);
  WL_ASYNC_BEGIN("copy", 1);
  {
    WL_REGION("work");
    __syncthreads();
    WL_VALUE("warp", threadIdx.x / 32);
    __syncthreads();
  }
  WL_ASYNC_END("copy", 1);
  WL_BEGIN("x"); WL_BEGIN("y"); WL_END("x"); WL_END("y");
  WL_END("never begun");
  WL_BEGIN("left");
}

__global__ void names(wl::Buffer prof) {
  wl::Kernel k(prof);
  WL_INSTANT("\"quoted\" \\ \t größe 漢字 🙂");
  WL_INSTANT("latin gr\xf6\xdf" "e");
  WL_INSTANT("cut\0off");
  WL_VALUE("infinite", 1e308 * 10);
  WL_VALUE("largest", ~0ull);
}

__global__ void threads(wl::Buffer prof) {
  wl::Kernel k(prof, wl::every_thread);
  WL_REGION("thread");
  __syncthreads();
}

int main(int, char** argv) try {
  const std::string what = argv[1], out = argv[2];
  wl::Capture capture;
  const auto run = [&](dim3 grid, dim3 block, auto kernel, wl::LaunchOptions options = {}) {
    const wl::Buffer prof = capture.launch(what, grid, block, options);
    shim::launch(grid, block, [&] { kernel(prof); });
  };
  if (what == "crossing") run(2, 64, crossing);
  if (what == "names") run(1, 32, names);
  if (what == "threads") run(1, 64, threads, {100, true});
  if (what == "no grid") run(dim3(4, 0), 64, crossing);
  if (what == "unused") capture.launch("unused", 1, 32);
  if (what == "again") {
    run(1, 64, crossing);
    capture.write(out);
    run(2, 64, crossing);
  }
  capture.write(out);
  capture.write_chrome(out + ".json");
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
