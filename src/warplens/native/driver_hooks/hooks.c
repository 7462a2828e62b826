/* Functions that stand in front of the CUDA driver's, so that kernels launched from C++ can be recorded.

   Loads and look-ups are noted here without Python. Launches, and what happens to graphs, are shown to Python, which
   may make the call in another way; whatever happens there, the call reaches the driver. */
#define _GNU_SOURCE
#include "hooks.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

typedef void *H; /* a handle or an address */
typedef uint32_t U;
#define CALLER __builtin_return_address(0)
#define OWN_STREAM 2 /* CU_STREAM_PER_THREAD */

enum {
    GET_PROC, GET_PROC_2, LOAD_DATA, LOAD_DATA_EX, LOAD_FAT, LOAD_FILE, LIBRARY_DATA, LIBRARY_FILE, GET_FUNCTION,
    GET_KERNEL, KERNEL_FUNCTION, LIBRARY_MODULE, UNLOAD, UNLOAD_LIBRARY, LAUNCH, LAUNCH_OWN, LAUNCH_EX, LAUNCH_EX_OWN,
    COOPERATIVE, COOPERATIVE_OWN, BEGIN, BEGIN_OWN, MAKE_FLAGS, MAKE_2, MAKE_PARAMS, MAKE_PARAMS_OWN, REPLAY,
    REPLAY_OWN, RESET, DESTROY, END_GRAPH, END_EXECUTABLE, SLOTS
};

static H real[SLOTS];
static _Atomic wl_listener listener;
static void *(*thread_state)(void);
static _Thread_local int passing;
static char problem[256];
static int installed;

static int handles_own_stream(U slot) {
    return slot == LAUNCH_OWN || slot == LAUNCH_EX_OWN || slot == COOPERATIVE_OWN || slot == BEGIN_OWN ||
           slot == REPLAY_OWN;
}

static uint64_t stream_of(U slot, H stream) {
    return !stream && handles_own_stream(slot) ? OWN_STREAM : (uint64_t)(uintptr_t)stream;
}

int wl_is_python_thread(void) { return !thread_state || thread_state(); }

/* Show a call to Python. Returns whether Python has made it. */
static int shown(wl_call *call) {
    wl_listener tell = atomic_load_explicit(&listener, memory_order_acquire);
    if (!tell) return 0;
    if (!wl_is_python_thread()) {
        if (call->stream == OWN_STREAM) return 0; /* it is another stream in the thread that would make the launch */
        call->context = wl_current_context();
        wl_answer_elsewhere(call);
    } else {
        passing++;
        tell(call);
        passing--;
    }
    return call->done;
}

static int followed(void *caller) {
    return atomic_load_explicit(&listener, memory_order_relaxed) && !passing && !wl_is_left_alone(caller);
}

/* ---- launches ---- */

int wl_make_call(wl_call *call, uint64_t function, void **params) {
    H f = (H)(uintptr_t)function, stream = (H)(uintptr_t)call->given_stream;
    const U *g = call->grid, *b = call->block;
    H *given = params ? params : call->params, *extra = params ? NULL : call->extra;
    call->done = 1;
    passing++;
    switch (call->slot) {
    case LAUNCH: case LAUNCH_OWN:
        call->status = ((int (*)(H, U, U, U, U, U, U, U, H, H *, H *))real[call->slot])(
            f, g[0], g[1], g[2], b[0], b[1], b[2], call->shared, stream, given, extra);
        break;
    case COOPERATIVE: case COOPERATIVE_OWN:
        call->status = ((int (*)(H, U, U, U, U, U, U, U, H, H *))real[call->slot])(
            f, g[0], g[1], g[2], b[0], b[1], b[2], call->shared, stream, given);
        break;
    case LAUNCH_EX: case LAUNCH_EX_OWN:
        call->status = ((int (*)(H, H, H *, H *))real[call->slot])(call->config, f, given, extra);
        break;
    default:
        call->status = ((int (*)(H, H))real[call->slot])(f, stream);
    }
    passing--;
    return call->status;
}

static int launch(wl_call *call, H f) {
    call->kind = WL_LAUNCH, call->function = (uint64_t)(uintptr_t)f;
    if (!wl_is_closed(call) && (wl_launch_ready(call) || shown(call))) return call->status;
    return wl_make_call(call, call->function, NULL);
}

static int plain_launch(U slot, H f, const U *sizes, H stream, H *params, H *extra) {
    wl_call call = {.slot = slot, .shared = sizes[6], .params = params, .extra = extra};
    memcpy(call.grid, sizes, 12), memcpy(call.block, sizes + 3, 12);
    call.given_stream = (uint64_t)(uintptr_t)stream, call.stream = stream_of(slot, stream);
    return launch(&call, f);
}

static void describe_config(wl_call *call, const char *config) {
    call->config = (H)config;
    if (!config) return;
    memcpy(call->grid, config, 12), memcpy(call->block, config + 12, 12), memcpy(&call->shared, config + 24, 4);
    memcpy(&call->given_stream, config + 32, 8);
}

static int launch_with(U slot, const char *config, H f, H *params, H *extra) {
    wl_call call = {.slot = slot, .params = params, .extra = extra};
    describe_config(&call, config);
    call.stream = stream_of(slot, (H)(uintptr_t)call.given_stream);
    return launch(&call, f);
}

/* The launch function of host code that other front ends follow: one that takes a configuration, a kernel and the
   addresses of its arguments. `by_config` is Python's answer to launches that are neither closed nor ready. */
typedef int (*config_launcher)(H config, H kernel, H *params);
static _Atomic config_launcher by_config, plain_by_config;

static int passed(config_launcher make, H config, H kernel, H *params) {
    passing++;
    int status = make(config, kernel, params);
    passing--;
    return status;
}

int wl_hooks_launch_config(H config, H kernel, H *params) {
    wl_call call = {.slot = LAUNCH_EX, .params = params};
    describe_config(&call, config);
    call.kind = WL_LAUNCH, call.function = (uint64_t)(uintptr_t)kernel, call.stream = call.given_stream;
    if (!wl_is_closed(&call)) {
        if (wl_launch_ready(&call)) return call.status;
        config_launcher answer = atomic_load_explicit(&by_config, memory_order_acquire);
        if (answer) return passed(answer, config, kernel, params);
    }
    return passed(plain_by_config, config, kernel, params);
}

/* Show launches by a configuration to a function; to none if it is null. `plain` makes them. */
void wl_hooks_answer_config(config_launcher answer, config_launcher plain, H launch_ex) {
    if (!installed && launch_ex) real[LAUNCH_EX] = launch_ex;
    if (plain) plain_by_config = plain;
    atomic_store_explicit(&by_config, answer, memory_order_release);
}

#define SIZES ((U[]){gx, gy, gz, bx, by, bz, shared})
#define LAUNCHER(name, slot)                                                                                           \
    static int name(H f, U gx, U gy, U gz, U bx, U by, U bz, U shared, H stream, H *params, H *extra) {               \
        if (followed(CALLER)) return plain_launch(slot, f, SIZES, stream, params, extra);                              \
        return ((int (*)(H, U, U, U, U, U, U, U, H, H *, H *))real[slot])(f, gx, gy, gz, bx, by, bz, shared, stream,  \
                                                                           params, extra);                             \
    }
#define LAUNCHER_COOPERATIVE(name, slot)                                                                               \
    static int name(H f, U gx, U gy, U gz, U bx, U by, U bz, U shared, H stream, H *params) {                         \
        if (followed(CALLER)) return plain_launch(slot, f, SIZES, stream, params, NULL);                               \
        return ((int (*)(H, U, U, U, U, U, U, U, H, H *))real[slot])(f, gx, gy, gz, bx, by, bz, shared, stream,       \
                                                                      params);                                         \
    }
#define LAUNCHER_EX(name, slot)                                                                                        \
    static int name(const char *config, H f, H *params, H *extra) {                                                    \
        if (followed(CALLER)) return launch_with(slot, config, f, params, extra);                                      \
        return ((int (*)(H, H, H *, H *))real[slot])((H)config, f, params, extra);                                     \
    }
LAUNCHER(launch_plain, LAUNCH)
LAUNCHER(launch_own, LAUNCH_OWN)
LAUNCHER_COOPERATIVE(cooperative, COOPERATIVE)
LAUNCHER_COOPERATIVE(cooperative_own, COOPERATIVE_OWN)
LAUNCHER_EX(launch_ex, LAUNCH_EX)
LAUNCHER_EX(launch_ex_own, LAUNCH_EX_OWN)

/* ---- graphs ---- */

static int begin_capture(U slot, H caller, H stream, int mode) {
    int status = ((int (*)(H, int))real[slot])(stream, mode);
    if (!status && followed(caller)) {
        wl_call call = {.kind = WL_CAPTURE_BEGAN, .slot = slot, .stream = stream_of(slot, stream)};
        shown(&call);
    }
    return status;
}
static int begin(H stream, int mode) { return begin_capture(BEGIN, CALLER, stream, mode); }
static int begin_own(H stream, int mode) { return begin_capture(BEGIN_OWN, CALLER, stream, mode); }

/* The variants take two to five arguments, all of which fit in registers. */
static int make_graph(U slot, H caller, H *executable, H graph, H a, H b, H c) {
    int status = ((int (*)(H *, H, H, H, H))real[slot])(executable, graph, a, b, c);
    if (!status && followed(caller)) {
        wl_call call = {.kind = WL_GRAPH_MADE, .slot = slot, .graph = (uint64_t)(uintptr_t)graph,
                        .function = (uint64_t)(uintptr_t)*executable};
        shown(&call);
    }
    return status;
}
#define MAKER(name, slot)                                                                                              \
    static int name(H *executable, H graph, H a, H b, H c) { return make_graph(slot, CALLER, executable, graph, a, b, c); }
MAKER(make_flags, MAKE_FLAGS)
MAKER(make_2, MAKE_2)
MAKER(make_params, MAKE_PARAMS)
MAKER(make_params_own, MAKE_PARAMS_OWN)

static int replay_graph(U slot, H caller, H executable, H stream) {
    wl_call call = {.kind = WL_GRAPH_LAUNCH, .slot = slot, .function = (uint64_t)(uintptr_t)executable,
                    .given_stream = (uint64_t)(uintptr_t)stream, .stream = stream_of(slot, stream)};
    if (followed(caller) && shown(&call)) return call.status;
    return wl_make_call(&call, call.function, NULL);
}
static int replay(H executable, H stream) { return replay_graph(REPLAY, CALLER, executable, stream); }
static int replay_own(H executable, H stream) { return replay_graph(REPLAY_OWN, CALLER, executable, stream); }

static int end_graph(U slot, H caller, H graph) {
    if (followed(caller)) {
        wl_call call = {.kind = WL_GRAPH_ENDS, .slot = slot, .graph = (uint64_t)(uintptr_t)graph};
        shown(&call);
    }
    return ((int (*)(H))real[slot])(graph);
}
static int destroy_graph(H graph) { return end_graph(END_GRAPH, CALLER, graph); }
static int destroy_executable(H executable) { return end_graph(END_EXECUTABLE, CALLER, executable); }

/* ---- the end of a context, and of all memory in it ---- */

static void context_ends(U slot, H caller) {
    if (followed(caller)) {
        wl_call call = {.kind = WL_CONTEXT_ENDS, .slot = slot};
        shown(&call);
    }
}
static int reset(int device) {
    context_ends(RESET, CALLER);
    return ((int (*)(int))real[RESET])(device);
}
static int destroy(H context) {
    context_ends(DESTROY, CALLER);
    return ((int (*)(H))real[DESTROY])(context);
}

/* ---- loads and look-ups, noted also while no profile runs: one may start later ---- */

#define NOTE(call, made, note)                                                                                         \
    int status = call;                                                                                                 \
    if (!status && made && !passing && !wl_is_left_alone(CALLER)) note;                                                \
    return status
#define N(handle) ((uint64_t)(uintptr_t)(handle))

static int load_data(H *module, H image) {
    NOTE(((int (*)(H *, H))real[LOAD_DATA])(module, image), *module, wl_keep_image(N(*module), WL_MODULE, image));
}
static int load_data_ex(H *module, H image, U count, H options, H values) {
    NOTE(((int (*)(H *, H, U, H, H))real[LOAD_DATA_EX])(module, image, count, options, values), *module,
         wl_keep_image(N(*module), WL_MODULE, image));
}
static int load_fat(H *module, H image) {
    NOTE(((int (*)(H *, H))real[LOAD_FAT])(module, image), *module, wl_keep_image(N(*module), WL_MODULE, image));
}
static int load_file(H *module, const char *path) {
    NOTE(((int (*)(H *, const char *))real[LOAD_FILE])(module, path), *module,
         wl_keep_file(N(*module), WL_MODULE, path));
}
static int library_data(H *library, H image, H a, H b, U c, H d, H e, U f) {
    NOTE(((int (*)(H *, H, H, H, U, H, H, U))real[LIBRARY_DATA])(library, image, a, b, c, d, e, f), *library,
         wl_keep_image(N(*library), WL_LIBRARY, image));
}
static int library_file(H *library, const char *path, H a, H b, U c, H d, H e, U f) {
    NOTE(((int (*)(H *, const char *, H, H, U, H, H, U))real[LIBRARY_FILE])(library, path, a, b, c, d, e, f),
         *library, wl_keep_file(N(*library), WL_LIBRARY, path));
}
static int get_function(H *function, H module, const char *name) {
    NOTE(((int (*)(H *, H, const char *))real[GET_FUNCTION])(function, module, name), *function,
         wl_keep_child(N(*function), WL_FUNCTION, N(module), name));
}
static int get_kernel(H *kernel, H library, const char *name) {
    NOTE(((int (*)(H *, H, const char *))real[GET_KERNEL])(kernel, library, name), *kernel,
         wl_keep_child(N(*kernel), WL_KERNEL, N(library), name));
}
static int kernel_function(H *function, H kernel) {
    NOTE(((int (*)(H *, H))real[KERNEL_FUNCTION])(function, kernel), *function && *function != kernel,
         wl_keep_child(N(*function), WL_FUNCTION, N(kernel), NULL));
}
static int library_module(H *module, H library) {
    NOTE(((int (*)(H *, H))real[LIBRARY_MODULE])(module, library), *module,
         wl_keep_child(N(*module), WL_MODULE, N(library), NULL));
}
static int unload(H module) {
    wl_forget_image(N(module));
    return ((int (*)(H))real[UNLOAD])(module);
}
static int unload_library(H library) {
    wl_forget_image(N(library));
    return ((int (*)(H))real[UNLOAD_LIBRARY])(library);
}

/* ---- what is found under which name ---- */

static int get_proc(const char *name, H *found, int version, uint64_t flags);
static int get_proc_2(const char *name, H *found, int version, uint64_t flags, H status);

static const struct slot {
    const char *exported, *name;
    int own, first, end; /* for whose default stream it is, and for which versions of CUDA */
    H ours;
} slots[SLOTS] = {
    [GET_PROC] = {"cuGetProcAddress", "cuGetProcAddress", 0, 0, 12000, get_proc},
    [GET_PROC_2] = {"cuGetProcAddress_v2", "cuGetProcAddress", 0, 12000, 99999, get_proc_2},
    [LOAD_DATA] = {"cuModuleLoadData", "cuModuleLoadData", 0, 0, 99999, load_data},
    [LOAD_DATA_EX] = {"cuModuleLoadDataEx", "cuModuleLoadDataEx", 0, 0, 99999, load_data_ex},
    [LOAD_FAT] = {"cuModuleLoadFatBinary", "cuModuleLoadFatBinary", 0, 0, 99999, load_fat},
    [LOAD_FILE] = {"cuModuleLoad", "cuModuleLoad", 0, 0, 99999, load_file},
    [LIBRARY_DATA] = {"cuLibraryLoadData", "cuLibraryLoadData", 0, 0, 99999, library_data},
    [LIBRARY_FILE] = {"cuLibraryLoadFromFile", "cuLibraryLoadFromFile", 0, 0, 99999, library_file},
    [GET_FUNCTION] = {"cuModuleGetFunction", "cuModuleGetFunction", 0, 0, 99999, get_function},
    [GET_KERNEL] = {"cuLibraryGetKernel", "cuLibraryGetKernel", 0, 0, 99999, get_kernel},
    [KERNEL_FUNCTION] = {"cuKernelGetFunction", "cuKernelGetFunction", 0, 0, 99999, kernel_function},
    [LIBRARY_MODULE] = {"cuLibraryGetModule", "cuLibraryGetModule", 0, 0, 99999, library_module},
    [UNLOAD] = {"cuModuleUnload", "cuModuleUnload", 0, 0, 99999, unload},
    [UNLOAD_LIBRARY] = {"cuLibraryUnload", "cuLibraryUnload", 0, 0, 99999, unload_library},
    [LAUNCH] = {"cuLaunchKernel", "cuLaunchKernel", 0, 0, 99999, launch_plain},
    [LAUNCH_OWN] = {"cuLaunchKernel_ptsz", "cuLaunchKernel", 1, 0, 99999, launch_own},
    [LAUNCH_EX] = {"cuLaunchKernelEx", "cuLaunchKernelEx", 0, 0, 99999, launch_ex},
    [LAUNCH_EX_OWN] = {"cuLaunchKernelEx_ptsz", "cuLaunchKernelEx", 1, 0, 99999, launch_ex_own},
    [COOPERATIVE] = {"cuLaunchCooperativeKernel", "cuLaunchCooperativeKernel", 0, 0, 99999, cooperative},
    [COOPERATIVE_OWN] = {"cuLaunchCooperativeKernel_ptsz", "cuLaunchCooperativeKernel", 1, 0, 99999, cooperative_own},
    [BEGIN] = {"cuStreamBeginCapture_v2", "cuStreamBeginCapture", 0, 10010, 99999, begin},
    [BEGIN_OWN] = {"cuStreamBeginCapture_v2_ptsz", "cuStreamBeginCapture", 1, 10010, 99999, begin_own},
    [MAKE_FLAGS] = {"cuGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags", 0, 0, 99999, make_flags},
    [MAKE_2] = {"cuGraphInstantiate_v2", "cuGraphInstantiate", 0, 11000, 12000, make_2},
    [MAKE_PARAMS] = {"cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams", 0, 0, 99999, make_params},
    [MAKE_PARAMS_OWN] = {"cuGraphInstantiateWithParams_ptsz", "cuGraphInstantiateWithParams", 1, 0, 99999,
                         make_params_own},
    [REPLAY] = {"cuGraphLaunch", "cuGraphLaunch", 0, 0, 99999, replay},
    [REPLAY_OWN] = {"cuGraphLaunch_ptsz", "cuGraphLaunch", 1, 0, 99999, replay_own},
    [END_GRAPH] = {"cuGraphDestroy", "cuGraphDestroy", 0, 0, 99999, destroy_graph},
    [END_EXECUTABLE] = {"cuGraphExecDestroy", "cuGraphExecDestroy", 0, 0, 99999, destroy_executable},
    [RESET] = {"cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxReset", 0, 11000, 99999, reset},
    [DESTROY] = {"cuCtxDestroy_v2", "cuCtxDestroy", 0, 4000, 99999, destroy},
};

/* The slot of a name; -1 where there is none. From CUDA 12 on, cuGraphInstantiate is the one with flags. */
static int slot_of(const char *name, int version, int own) {
    int other = -1;
    if (!strcmp(name, "cuGraphInstantiate") && version >= 12000) name = "cuGraphInstantiateWithFlags";
    for (int i = 0; i < SLOTS; i++) {
        if (strcmp(slots[i].name, name) || version < slots[i].first || version >= slots[i].end) continue;
        if (slots[i].own == own) return i;
        other = i; /* a function without a stream has one variant for both */
    }
    return own ? other : -1;
}

/* Put ours in the place of what the driver found under a name. */
static void take_over(const char *name, H *found, int version, uint64_t flags, void *caller) {
    if (!found || !*found || wl_is_left_alone(caller)) return;
    int slot = -1;
    for (int i = 0; i < SLOTS && slot < 0; i++)
        if (*found == real[i]) slot = i;
    if (slot < 0) slot = slot_of(name, version, (flags & 2) != 0);
    if (slot < 0) return;
    if (!real[slot]) real[slot] = *found;
    *found = slots[slot].ours;
}

static int get_proc(const char *name, H *found, int version, uint64_t flags) {
    int status = ((int (*)(const char *, H *, int, uint64_t))real[GET_PROC])(name, found, version, flags);
    if (!status) take_over(name, found, version, flags, CALLER);
    return status;
}
static int get_proc_2(const char *name, H *found, int version, uint64_t flags, H result) {
    int status = ((int (*)(const char *, H *, int, uint64_t, H))real[GET_PROC_2])(name, found, version, flags, result);
    if (!status) take_over(name, found, version, flags, CALLER);
    return status;
}

/* ---- what Python calls ---- */

/* Stand in front of the functions of a driver. `get_thread_state` gives null in threads that Python does not know.
   Returns null, or what is wrong. */
const char *wl_hooks_install(const char *path, void *(*get_thread_state)(void)) {
    H ours[SLOTS];
    thread_state = get_thread_state;
    if (installed) return NULL;
    H library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    int in_use = library != NULL;
    if (!library) library = dlopen(path, RTLD_NOW);
    if (!library) return strncpy(problem, dlerror(), sizeof problem - 1);
    for (int i = 0; i < SLOTS; i++) real[i] = wl_find_export(library, slots[i].exported), ours[i] = slots[i].ours;
    if (!real[LAUNCH]) return strcpy(problem, "the driver's table of symbols cannot be read");
    for (int i = 0; i < SLOTS; i++)
        if (real[i]) wl_set_export(library, slots[i].exported, slots[i].ours);
    if (wl_find_export(library, "cuLaunchKernel") != slots[LAUNCH].ours)
        return strcpy(problem, "the driver's table of symbols cannot be changed");
    if (in_use) wl_replace_pointers(library, real, ours, SLOTS);
    installed = 1;
    return NULL;
}

/* Show calls to a function; to none if it is null. */
void wl_hooks_listen(wl_listener tell) { atomic_store_explicit(&listener, tell, memory_order_release); }

/* Let the calls of this thread pass, until the same is called with -1. */
void wl_hooks_pass(int more) { passing += more; }
