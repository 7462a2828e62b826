// The SM Profiler's quick start through the shim: FILE BLOCKS GROUPS EVENTS ENABLED.
#define WARPLENS_SHIM 1
#include "cuda_shim.h"
#include "quick_start.cu"

#include <cstdlib>

int main(int argc, char** argv) {
  if (argc < 6) return 9;
  const int code = quick_start(argv[1], atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), [](uint64_t* buffer) {
    shim::launch(dim3(2, 2), dim3(32, 2, 2), [&] { my_kernel(buffer); });
  });
  shim::check_guards();
  return shim::guards_intact ? code : 30;
}
