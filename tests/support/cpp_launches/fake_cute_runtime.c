/* The runtime library of the CuTe DSL, on the driver's functions as its CUDA runtime finds them. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

typedef void *H;

static H find(const char *name) {
    static int (*get)(const char *, H *, int, uint64_t, H);
    H found = NULL;
    if (!get) get = (int (*)(const char *, H *, int, uint64_t, H))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2");
    get(name, &found, 12080, 0, NULL);
    return found;
}

int _cudaLibraryLoadData(H *library, H image, H a, H b, unsigned c, H d, H e, unsigned f) {
    return ((int (*)(H *, H, H, H, unsigned, H, H, unsigned))find("cuLibraryLoadData"))(library, image, a, b, c, d, e, f);
}
int _cudaLibraryGetKernel(H *kernel, H library, const char *name) {
    return ((int (*)(H *, H, const char *))find("cuLibraryGetKernel"))(kernel, library, name);
}
int _cudaLaunchKernelEx(H config, H kernel, H *params) {
    return ((int (*)(H, H, H *, H *))find("cuLaunchKernelEx"))(config, kernel, params, NULL);
}
int _cudaLaunchKernel(void) { return 1; }
int _cudaGetDevice(int *device) { return *device = 0, 0; }
int _cudaSetDevice(int device) { return 0; }
int _cudaDeviceGetAttribute(int *value, int a, int d) { return *value = 232448, 0; }
int _cuKernelGetAttribute(int *value, int a, H k, int d) { return *value = 0, 0; }
int _cudaKernelSetAttributeForDevice(H k, int a, int v, int d) { return 0; }
int _cudaFuncSetAttribute(H f, int a, int v) { return 0; }
int _cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, H f, int b, size_t s) { return *n = 1, 0; }
const char *cuda_dialect_get_error_name(int error) { return "error"; }
int cuda_dialect_init_library_once(H *state, int (*init)(H *), int (*load)(H *, int), H error) {
    if (*state) return 0;
    H library = NULL;
    int status = init(&library);
    if (!status) status = load(&library, 0);
    if (!status) *state = library;
    return status;
}
void cuda_dialect_unload_library_once(H *state) {}
int CuteDSLRT_TVMFFISetRaisedCudaError(void) { return 0; }
