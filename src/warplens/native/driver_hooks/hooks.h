/* The ABI between warplens/driver/call_hooks.py and the library that stands in front of the CUDA driver. */
#ifndef WARPLENS_DRIVER_HOOKS_H
#define WARPLENS_DRIVER_HOOKS_H

#include <stddef.h>
#include <stdint.h>

enum wl_kind { WL_LAUNCH, WL_CAPTURE_BEGAN, WL_GRAPH_MADE, WL_GRAPH_LAUNCH, WL_CONTEXT_ENDS, WL_GRAPH_ENDS, WL_REFILL };

/* One call that Python may answer. `done` says that Python has made the call itself, and `status` what came of it. */
typedef struct wl_call {
    uint32_t kind, slot;
    uint64_t function; /* of a graph: its executable */
    uint64_t stream;   /* as any function of the driver takes it: 2 is the thread's own */
    uint64_t graph, context;
    uint32_t grid[3], block[3], shared;
    int32_t status, done;
    uint64_t given_stream; /* as this function takes it */
    void **params, **extra;
    void *config;
} wl_call;

/* Where a handle is from. The image stays where it is until its module is unloaded. */
typedef struct wl_origin {
    uint32_t kind; /* of wl_origin_kind */
    uint64_t parent;
    const char *name;
    const void *image;
    uint64_t size;
} wl_origin;

enum wl_origin_kind { WL_UNKNOWN, WL_MODULE, WL_LIBRARY, WL_FUNCTION, WL_KERNEL };

typedef void (*wl_listener)(wl_call *);

/* handles.c */
void wl_keep_image(uint64_t handle, int kind, const void *image);
void wl_keep_file(uint64_t handle, int kind, const char *path);
void wl_keep_child(uint64_t handle, int kind, uint64_t parent, const char *name);
void wl_forget_image(uint64_t handle);
int wl_hooks_find(uint64_t handle, wl_origin *out);

/* closed.c: launches that need no answer any more */
int wl_is_closed(const wl_call *call);
void wl_reopen_function(uint64_t function);

/* ready.c: launches that are recorded without Python */
typedef struct wl_ready {
    uint64_t pointer, event; /* the kernel's buffer, and what is reached when the launch is over */
    uint64_t stream, number; /* where it was made, and as which of all */
    int64_t time_ns;
    int32_t state, status; /* free, taken, made or refused; what came of its event */
} wl_ready;
int wl_launch_ready(wl_call *call);
uint64_t wl_current_context(void);
void wl_close_ready(uint64_t function);

/* waiting.c: calls of threads that Python does not know */
void wl_answer_elsewhere(wl_call *call);
void wl_ask_to_refill(const wl_call *call);

/* exports.c */
void *wl_find_export(void *library, const char *name);
void wl_set_export(void *library, const char *name, void *address);
void wl_replace_pointers(void *library, void *const *from, void *const *to, size_t count);
int wl_is_left_alone(void *caller);

/* hooks.c */
int wl_is_python_thread(void);
int wl_make_call(wl_call *call, uint64_t function, void **params);

#endif
