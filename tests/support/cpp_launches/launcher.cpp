// A C++ library that launches kernels as a statically linked CUDA runtime does: it opens the driver when it is first
// used, and asks it for its functions by cuGetProcAddress.
#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <thread>

namespace {
using H = void *;
using Get = int (*)(const char *, H *, int, uint64_t, H);

struct Driver {
    Get get;
    Driver() {
        H library = dlopen("libcuda.so.1", RTLD_NOW);
        get = reinterpret_cast<Get>(dlsym(library, "cuGetProcAddress_v2"));
    }
    H find(const char *name, uint64_t flags = 1) const {
        H found = nullptr;
        get(name, &found, 12080, flags, nullptr);
        return found;
    }
};

Driver &driver() {
    static Driver one;
    return one;
}

template <typename... A> int call(const char *name, uint64_t flags, A... arguments) {
    return reinterpret_cast<int (*)(A...)>(driver().find(name, flags))(arguments...);
}

H kernel;
}  // namespace

extern "C" {
// Load an image as a library (`whole`) or as a module, and find a kernel in it.
int load(const void *image, const char *name, int whole) {
    H home = nullptr, nothing = nullptr;
    int status = whole ? call("cuLibraryLoadData", 1, &home, const_cast<void *>(image), nothing, nothing, 0u, nothing,
                              nothing, 0u)
                       : call("cuModuleLoadData", 1, &home, const_cast<void *>(image));
    if (status) return status;
    return call(whole ? "cuLibraryGetKernel" : "cuModuleGetFunction", 1, &kernel, home, const_cast<char *>(name));
}

// Launch a[i] + b[i] in one of the ways that there are.
int launch(const char *way, unsigned blocks, unsigned threads, uint64_t stream, uint64_t a, uint64_t b, uint64_t c,
           int n) {
    H params[] = {&a, &b, &c, &n};
    H to = reinterpret_cast<H>(stream), none = nullptr;
    if (!strcmp(way, "ex")) {
        struct {
            unsigned grid[3], block[3], shared;
            H stream, attributes;
            unsigned count;
        } config = {{blocks, 1, 1}, {threads, 1, 1}, 0, to, nullptr, 0};
        return call("cuLaunchKernelEx", 1, static_cast<void *>(&config), kernel, static_cast<H *>(params), none);
    }
    if (!strcmp(way, "cooperative"))
        return call("cuLaunchCooperativeKernel", 1, kernel, blocks, 1u, 1u, threads, 1u, 1u, 0u, to,
                    static_cast<H *>(params));
    if (!strcmp(way, "packed")) {
        struct {
            uint64_t a, b, c;
            int n;
        } packed = {a, b, c, n};
        size_t size = sizeof packed;
        H extra[] = {reinterpret_cast<H>(1), &packed, reinterpret_cast<H>(2), &size, nullptr};
        return call("cuLaunchKernel", 1, kernel, blocks, 1u, 1u, threads, 1u, 1u, 0u, to, static_cast<H *>(nullptr),
                    static_cast<H *>(extra));
    }
    uint64_t flags = !strcmp(way, "own stream") ? 2 : 1;
    return call("cuLaunchKernel", flags, kernel, blocks, 1u, 1u, threads, 1u, 1u, 0u, to, static_cast<H *>(params),
                static_cast<H *>(nullptr));
}

// The same in a thread that Python does not know.
int launch_in_thread(const char *way, unsigned blocks, unsigned threads, uint64_t stream, uint64_t a, uint64_t b,
                     uint64_t c, int n) {
    int status = -1;
    std::thread([&] { status = launch(way, blocks, threads, stream, a, b, c, n); }).join();
    return status;
}

// Capture one launch, and replay it; with `early`, the graph is destroyed once there is an executable one.
int replay(const char *way, int times, int early, unsigned blocks, unsigned threads, uint64_t stream, uint64_t a, uint64_t b, uint64_t c, int n) {
    H to = reinterpret_cast<H>(stream), graph = nullptr, executable = nullptr;
    call("cuStreamBeginCapture", 1, to, 0);
    int status = launch(way, blocks, threads, stream, a, b, c, n);
    call("cuStreamEndCapture", 1, to, &graph);
    call("cuGraphInstantiate", 1, &executable, graph, static_cast<uint64_t>(0));
    if (early) call("cuGraphDestroy", 1, graph);
    for (int i = 0; i < times; i++) status |= call("cuGraphLaunch", 1, executable, to);
    return status;
}
}
