/* A driver that knows modules, functions, streams and graphs, and lets Python run the kernels. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <dlfcn.h>

typedef void *H;
typedef unsigned U;

/* Runs a function: handle, grid and block and shared memory, stream, argument addresses, whether they were packed. */
typedef int (*runner)(uint64_t, const U *, uint64_t, void **, int);
/* Loads: gives the handle of an image, or of a symbol in one. */
typedef uint64_t (*loader)(const void *, uint64_t, const char *);
static runner run;
static loader load;
static int refused, graphs, refusals;

void fake_connect(runner r, loader l) { run = r, load = l; }
/* Let the next launches fail with this status. */
void fake_refuse(int status) { refused = status; }

/* Let this many launches fail. */
void fake_refuse_times(int status, int times) { refused = status, refusals = times; }

static int go(H f, U gx, U gy, U gz, U bx, U by, U bz, U shared, H stream, H *params, H *extra) {
    U sizes[7] = {gx, gy, gz, bx, by, bz, shared};
    if (refused) {
        int status = refused;
        if (!refusals || !--refusals) refused = 0;
        return status;
    }
    return run((uint64_t)f, sizes, (uint64_t)stream, params ? params : extra, !params && extra);
}

/* Where the arguments of the test's kernel are, and whether its result is right. */
uint64_t fake_place(int number) { return load(NULL, (uint64_t)number, "place"); }
int fake_check(void) { return (int)load(NULL, 0, "check"); }

int cuInit(U flags) { return 0; }
int cuCtxGetCurrent(H *context) { return *context = (H)1, 0; }
int cuModuleLoadData(H *module, const void *image) { return *module = (H)load(image, 0, NULL), 0; }
int cuModuleLoadDataEx(H *module, const void *image, U n, H *o, H *v) { return cuModuleLoadData(module, image); }
int cuModuleLoadFatBinary(H *module, const void *image) { return cuModuleLoadData(module, image); }
int cuModuleLoad(H *module, const char *path) { return *module = (H)load(path, 1, NULL), 0; }
int cuDevicePrimaryCtxReset_v2(int device) { return 0; }
int cuModuleUnload(H module) { return 0; }
int cuModuleGetFunction(H *f, H module, const char *name) { return *f = (H)load(NULL, (uint64_t)module, name), 0; }
int cuLibraryLoadData(H *library, const void *image, H a, H b, U c, H d, H e, U g) {
    return cuModuleLoadData(library, image);
}
int cuLibraryLoadFromFile(H *library, const char *path, H a, H b, U c, H d, H e, U g) {
    return cuModuleLoad(library, path);
}
int cuLibraryUnload(H library) { return 0; }
int cuLibraryGetKernel(H *kernel, H library, const char *name) { return cuModuleGetFunction(kernel, library, name); }
int cuLibraryGetModule(H *module, H library) { return *module = library, 0; }
int cuKernelGetFunction(H *f, H kernel) { return *f = kernel, 0; }

int cuLaunchKernel(H f, U gx, U gy, U gz, U bx, U by, U bz, U shared, H stream, H *params, H *extra) {
    return go(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}
int cuLaunchKernel_ptsz(H f, U gx, U gy, U gz, U bx, U by, U bz, U shared, H stream, H *params, H *extra) {
    return go(f, gx, gy, gz, bx, by, bz, shared, stream ? stream : (H)2, params, extra);
}
int cuLaunchCooperativeKernel(H f, U gx, U gy, U gz, U bx, U by, U bz, U shared, H stream, H *params) {
    return go(f, gx, gy, gz, bx, by, bz, shared, stream, params, NULL);
}
int cuLaunchKernelEx(const U *c, H f, H *params, H *extra) {
    H stream;
    memcpy(&stream, c + 8, sizeof stream);
    return go(f, c[0], c[1], c[2], c[3], c[4], c[5], c[6], stream, params, extra);
}

/* A graph's handle is told from a function's by kind: 3 begins a capture, 4 ends it, 5 replays it. */
int cuStreamBeginCapture_v2(H stream, int mode) { return load(NULL, (uint64_t)stream, "begin"), 0; }
int cuStreamEndCapture(H stream, H *graph) { return *graph = (H)load(NULL, (uint64_t)stream, "end"), 0; }
int cuGraphInstantiateWithFlags(H *executable, H graph, uint64_t flags) {
    return *executable = (H)((uint64_t)graph + 100000 + (uint64_t)(graphs++ * 0)), 0;
}
int cuGraphDestroy(H graph) { return 0; }
int cuGraphLaunch(H executable, H stream) { return load(NULL, (uint64_t)executable - 100000, "replay"), 0; }

/* What a library asks before it uses a device. Everything else succeeds without doing anything. */
static int nothing(void) { return 0; }
/* The driver's private tables, empty: their first entry is their size. */
int cuGetExportTable(const void **table, const void *which) {
    static const size_t empty[1] = {sizeof empty};
    return *table = empty, 0;
}
static int driver_version(int *v) { return *v = 13040, 0; }
static int one(int *v) { return *v = 1, 0; }
static int zero(int *v) { return *v = 0, 0; }
static int attribute(int *v, int which, int device) {
    return *v = which == 75 ? 9 : which == 76 ? 0 : which == 16 ? 132 : which == 10 ? 32 : which == 1 ? 1024 : 1, 0;
}
static int device_name(char *n, int length, int device) { return strcpy(n, "fake"), 0; }
static int state(int device, U *flags, int *active) { return *flags = 0, *active = 1, 0; }
static int memory(size_t *bytes, int device) { return *bytes = (size_t)1 << 32, 0; }
static int retain(H *context, int device) { return *context = (H)1, 0; }

/* What libraries look up by name. */
int cuCtxGetDevice(int *v) { return zero(v); }
int cuDeviceGetAttribute(int *v, int which, int device) { return attribute(v, which, device); }
int cuDeviceGetName(char *n, int length, int device) { return device_name(n, length, device); }
int cuGetErrorName(int status, const char **n) { return *n = "error", 0; }
int cuGetErrorString(int status, const char **n) { return *n = "error", 0; }
#define NOTHING(name) int name(void) { return 0; }
NOTHING(cuFuncSetAttribute) NOTHING(cuCtxGetLimit) NOTHING(cuCtxSetLimit) NOTHING(cuCtxResetPersistingL2Cache)
NOTHING(cuModuleGetGlobal) NOTHING(cuMemsetD32) NOTHING(cuStreamSetAttribute) NOTHING(cuTensorMapEncodeIm2col)
NOTHING(cuTensorMapEncodeTiled)

int cuGetProcAddress_v2(const char *name, H *found, int version, uint64_t flags, H status) {
    char full[128];
    strcpy(full, name);
    if (!strcmp(name, "cuGraphInstantiate") && version >= 12000) strcat(full, "WithFlags");
    if (!strcmp(name, "cuStreamBeginCapture") || !strcmp(name, "cuGetProcAddress")) strcat(full, "_v2");
    if ((flags & 2) && !strcmp(name, "cuLaunchKernel")) strcat(full, "_ptsz");
    /* As a driver does that keeps a table of its own: not by its exported symbols. */
    static const struct { const char *name; H address; } table[] = {
        {"cuModuleLoadData", cuModuleLoadData}, {"cuModuleGetFunction", cuModuleGetFunction},
        {"cuLibraryLoadData", cuLibraryLoadData}, {"cuLibraryGetKernel", cuLibraryGetKernel},
        {"cuKernelGetFunction", cuKernelGetFunction}, {"cuLaunchKernel", cuLaunchKernel},
        {"cuLaunchKernel_ptsz", cuLaunchKernel_ptsz}, {"cuLaunchKernelEx", cuLaunchKernelEx},
        {"cuLaunchCooperativeKernel", cuLaunchCooperativeKernel}, {"cuStreamBeginCapture_v2", cuStreamBeginCapture_v2},
        {"cuStreamEndCapture", cuStreamEndCapture}, {"cuGraphInstantiateWithFlags", cuGraphInstantiateWithFlags},
        {"cuGraphLaunch", cuGraphLaunch}, {"cuInit", cuInit}, {"cuGetProcAddress_v2", cuGetProcAddress_v2},
        {"cuModuleLoadDataEx", cuModuleLoadDataEx}, {"cuCtxGetCurrent", cuCtxGetCurrent},
        {"cuDriverGetVersion", driver_version}, {"cuGetExportTable", cuGetExportTable}, {"cuDeviceGetCount", one}, {"cuDeviceGet", zero}, {"cuCtxGetDevice", zero},
        {"cuDeviceGetAttribute", attribute}, {"cuDeviceGetName", device_name}, {"cuDevicePrimaryCtxGetState", state},
        {"cuDeviceTotalMem", memory}, {"cuDevicePrimaryCtxRetain", retain}, {"cuModuleUnload", cuModuleUnload}, {"cuGraphDestroy", cuGraphDestroy},
        {"cuDevicePrimaryCtxReset", cuDevicePrimaryCtxReset_v2},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, full)) return *found = table[i].address, 0;
    *found = nothing;
    return 0;
}
int cuGetProcAddress(const char *name, H *found, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, found, version, flags, NULL);
}
