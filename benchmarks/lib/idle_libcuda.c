#define _DEFAULT_SOURCE
/* A CUDA driver that does nothing but keep memory: device memory is the host's, every event is reached at once. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MEMORY ((size_t)1 << 36)
#define ALIGNMENT ((size_t)1 << 20)
#define PARTS 4096

typedef struct {
    size_t src_x, src_y;
    int src_type;
    const void *src_host;
    uint64_t src_device;
    void *src_array;
    size_t src_pitch, dst_x, dst_y;
    int dst_type;
    void *dst_host;
    uint64_t dst_device;
    void *dst_array;
    size_t dst_pitch, width, height;
} Memcpy2D;

static uintptr_t handles = 1;
static __thread uintptr_t pushed;

static void *captured;

/* Let what goes to a stream be captured into a graph; 0 for none. */
void idle_capture(void *stream) { captured = stream; }

static int handle(void **out) {
    *out = (void *)++handles;
    return 0;
}

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *out) { return *out = 13000, 0; }
int cuDeviceGet(int *out, int index) { return *out = 0; }
int cuDeviceGetCount(int *out) { return *out = 1, 0; }
int cuDeviceGetName(char *out, int size, int device) { return strncpy(out, "idle", size), 0; }
int cuDeviceGetAttribute(int *out, int number, int device) { return *out = number == 13 ? 1980000 : number == 16 ? 132 : 9, 0; }
int cuDevicePrimaryCtxRetain(void **out, int device) { return *out = (void *)7, 0; }
int cuCtxGetCurrent(void **out) { return *out = (void *)7, 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuCtxPushCurrent_v2(void *context) { return pushed = (uintptr_t)context, 0; }
int cuCtxPopCurrent_v2(void **out) { return *out = (void *)pushed, 0; }
int cuCtxGetDevice(int *out) { return *out = 0; }
int cuCtxSynchronize(void) { return 0; }
int cuMemGetInfo_v2(size_t *available, size_t *total) { return *available = *total = (size_t)1 << 33, 0; }
/* One large range, whose parts are used again: a system call per allocation would be measured instead of warplens. */
static struct part { uint64_t address; size_t size; int used; } parts[PARTS];
static int part_count;

int cuMemAlloc_v2(uint64_t *out, size_t size) {
    static char *next, *end;
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    for (int i = 0; i < part_count; i++)
        if (!parts[i].used && parts[i].size == size) return parts[i].used = 1, *out = parts[i].address, 0;
    if (!next) {
        next = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        end = next == MAP_FAILED ? next : next + MEMORY;
    }
    if ((size_t)(end - next) < size || part_count == PARTS) return 2;
    *out = (uint64_t)(uintptr_t)next;
    parts[part_count++] = (struct part){*out, size, 1};
    next += size;
    return 0;
}
int cuMemFree_v2(uint64_t address) {
    for (int i = 0; i < part_count; i++)
        if (parts[i].address == address) { /* the next owner finds zeros, as in new memory */
            madvise((void *)(uintptr_t)address, parts[i].size, MADV_DONTNEED);
            parts[i].used = 0;
        }
    return 0;
}
int cuMemHostAlloc(void **out, size_t size, unsigned flags) { return (*out = calloc(1, size)) ? 0 : 2; }
int cuMemFreeHost(void *address) { return free(address), 0; }
/* A GPU clears its memory beside the host; what was just allocated here is zero. */
int cuMemsetD8Async(uint64_t address, unsigned char value, size_t size, void *stream) { return 0; }
int cuMemsetD2D8Async_v2(uint64_t address, size_t pitch, unsigned char value, size_t width, size_t rows, void *stream) {
    return 0;
}
int cuMemcpy2DAsync_v2(const Memcpy2D *job, void *stream) {
    for (size_t row = 0; row < job->height; row++)
        memcpy((char *)job->dst_host + row * job->dst_pitch,
               (const char *)(uintptr_t)job->src_device + row * job->src_pitch, job->width);
    return 0;
}
int cuStreamCreate(void **out, unsigned flags) { return handle(out); }
int cuStreamDestroy_v2(void *stream) { return 0; }
int cuStreamQuery(void *stream) { return 600; }
int cuStreamSynchronize(void *stream) { return 0; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return 0; }
int cuStreamIsCapturing(void *stream, int *out) { return *out = captured && stream == captured, 0; }
int cuThreadExchangeStreamCaptureMode(int *mode) { return *mode = 0; }
int cuEventCreate(void **out, unsigned flags) { return handle(out); }
int cuEventRecord(void *event, void *stream) { return 0; }
int cuEventQuery(void *event) { return 0; }
int cuEventSynchronize(void *event) { return 0; }
int cuEventDestroy_v2(void *event) { return 0; }
int cuEventElapsedTime(float *out, void *first, void *second) { return *out = 1.0f, 0; }
int cuModuleLoadData(void **out, const void *image) { return handle(out); }
int cuModuleGetFunction(void **out, void *module, const char *name) { return handle(out); }
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    return 0;
}
int cuFuncGetAttribute(int *out, int number, void *function) { return *out = 0; }
int cuFuncSetAttribute(void *function, int number, int value) { return 0; }
int cuGetErrorString(int status, const char **out) { return *out = "error", 0; }

/* Code: the handle of a kernel or function is its name. */
int cuLibraryLoadData(void **out, const void *image, void *a, void *b, unsigned c, void *d, void *e, unsigned f) {
    return handle(out);
}
int cuLibraryGetKernel(void **out, void *library, const char *name) { return *out = strdup(name), 0; }
int cuKernelGetFunction(void **out, void *kernel) { return *out = kernel, 0; }
int cuKernelGetName(const char **out, void *kernel) { return *out = kernel, 0; }
int cuFuncGetName(const char **out, void *function) { return *out = function, 0; }
int cuFuncGetParamInfo(void *function, size_t number, size_t *offset, size_t *size) {
    return *offset = 8 * number, *size = 8, number >= 2;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, void *function, int threads, size_t shared) {
    return *out = 4, 0;
}
int cuLaunchKernelEx(const void *config, void *function, void **arguments, void **extra) { return 0; }

/* The runtime library of the CuTe DSL. */
int _cudaLibraryLoadData(void **out, const void *image, void *a, void *b, unsigned c, void *d, void *e, unsigned f) {
    return handle(out);
}
int _cudaLibraryGetKernel(void **out, void *library, const char *name) { return *out = strdup(name), 0; }
int _cudaLaunchKernelEx(void *config, void *kernel, void **arguments) {
    return cuLaunchKernelEx(config, kernel, arguments, NULL);
}
int _cudaLaunchKernel(void) { return 1; }
int _cudaGetDevice(int *out) { return *out = 0; }
int _cudaSetDevice(int device) { return 0; }
int _cudaDeviceGetAttribute(int *out, int number, int device) { return *out = 232448, 0; }
int _cuKernelGetAttribute(int *out, int number, void *kernel, int device) { return *out = 0; }
int _cudaKernelSetAttributeForDevice(void *kernel, int number, int value, int device) { return 0; }
int _cudaFuncSetAttribute(void *function, int number, int value) { return 0; }
int _cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *out, void *f, int b, size_t s) { return *out = 1, 0; }
const char *cuda_dialect_get_error_name(int error) { return "error"; }
int cuda_dialect_init_library_once(void **state, int (*init)(void **), int (*load)(void **, int), void *error) {
    void *library = NULL;
    int status = *state ? 0 : init(&library);
    if (!*state && !status && !(status = load(&library, 0))) *state = library;
    return status;
}
void cuda_dialect_unload_library_once(void **state) {}
