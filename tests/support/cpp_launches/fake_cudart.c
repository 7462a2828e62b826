/* The CUDA runtime as TileLang uses it beside the driver: one device, and nothing to do. */
#include <stddef.h>

typedef void *H;
int cudaGetDevice(int *device) { return *device = 0, 0; }
int cudaGetDeviceCount(int *count) { return *count = 1, 0; }
int cudaDeviceGetAttribute(int *value, int which, int device) { return *value = which == 75 ? 9 : 0, 0; }
const char *cudaGetErrorString(int error) { return "error"; }
#define NOTHING(name) int name(void) { return 0; }
NOTHING(cudaSetDevice) NOTHING(cudaGetLastError) NOTHING(cudaPeekAtLastError) NOTHING(cudaDeviceSynchronize)
NOTHING(cudaEventCreate) NOTHING(cudaEventDestroy) NOTHING(cudaEventElapsedTime) NOTHING(cudaEventRecord)
NOTHING(cudaEventSynchronize) NOTHING(cudaFree) NOTHING(cudaFreeHost) NOTHING(cudaFuncSetAttribute)
NOTHING(cudaGetDeviceProperties) NOTHING(cudaGraphDestroy) NOTHING(cudaGraphExecDestroy) NOTHING(cudaGraphInstantiate)
NOTHING(cudaGraphLaunch) NOTHING(cudaIpcCloseMemHandle) NOTHING(cudaIpcGetMemHandle) NOTHING(cudaIpcOpenMemHandle)
NOTHING(cudaMalloc) NOTHING(cudaMallocHost) NOTHING(cudaMemGetInfo) NOTHING(cudaMemcpy) NOTHING(cudaMemcpyAsync)
NOTHING(cudaMemcpyPeerAsync) NOTHING(cudaMemset) NOTHING(cudaMemsetAsync) NOTHING(cudaStreamBeginCapture)
NOTHING(cudaStreamCreate) NOTHING(cudaStreamCreateWithFlags) NOTHING(cudaStreamDestroy) NOTHING(cudaStreamEndCapture)
NOTHING(cudaStreamSynchronize) NOTHING(cudaStreamWaitEvent)
