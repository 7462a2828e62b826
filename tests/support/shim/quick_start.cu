// The quick start of the SM Profiler's README, with only the include changed; GRID and BLOCK vary the shape.
#include "sm_profiler.h"

#include <stdio.h>

#define EVT_COMPUTE 0
#define EVT_MEMORY 1
#define EVT_SYNC 2
#define EVT_LAST 31

__global__ void my_kernel(uint64_t* profiler_buffer) {
  bool is_lane_0 = (sm_profiler_get_lane_id() == 0);

  sm_profiler_event_start(profiler_buffer, EVT_COMPUTE, is_lane_0);
  sm_profiler_event_start(profiler_buffer, EVT_MEMORY, is_lane_0);
  sm_profiler_event_start(profiler_buffer, EVT_MEMORY, is_lane_0);  // the same event nests
  sm_profiler_event_end(profiler_buffer, EVT_MEMORY, is_lane_0);
  sm_profiler_event_end(profiler_buffer, EVT_MEMORY, is_lane_0);
  sm_profiler_event_end(profiler_buffer, EVT_COMPUTE, is_lane_0);

  sm_profiler_event_instant(profiler_buffer, EVT_SYNC, is_lane_0);
  sm_profiler_event_instant(profiler_buffer, EVT_LAST, true);  // all lanes: one of them records
}

int quick_start(const char* file, uint32_t blocks, uint32_t groups, uint32_t events, int enabled,
                void (*launch)(uint64_t*)) {
  sm_profiler_buffer_t profiler = sm_profiler_create_buffer(blocks, groups, events, enabled);
  if (!profiler) return 1;
  sm_profiler_register_event(profiler, EVT_COMPUTE, "compute");
  sm_profiler_register_event(profiler, EVT_MEMORY, "memory");
  sm_profiler_register_event(profiler, EVT_SYNC, "sync");
  if (sm_profiler_register_event(profiler, 32, "too far") == 0) return 2;
  sm_profiler_init_buffer(profiler);
  uint64_t* device_ptr = sm_profiler_get_device_ptr(profiler);
  if ((device_ptr == nullptr) != (enabled == 0)) return 3;
  launch(device_ptr);
  if (sm_profiler_export_to_file(profiler, file) != 0) return 4;
  sm_profiler_destroy_buffer(profiler);
  return 0;
}

#if !defined(WARPLENS_SHIM)
#include <stdlib.h>

static dim3 grid(2, 2), block(32, 2, 2);
int main(int argc, char** argv) {
  if (argc < 6) return 9;
  const int code = quick_start(argv[1], atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), [](uint64_t* buffer) {
    my_kernel<<<grid, block>>>(buffer);
  });
  return code ? code : cudaDeviceSynchronize() != cudaSuccess;
}
#endif
