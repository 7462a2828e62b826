/* What a recorded launch asks of the CUDA driver, in one call each: a call from Python costs more than the driver does. */
#include <stddef.h>

typedef int (*wl_get_context)(void **context);
typedef int (*wl_is_capturing)(void *stream, int *status);
typedef int (*wl_create_event)(void **event, unsigned flags);

static wl_get_context get_context;
static wl_is_capturing is_capturing;
static wl_create_event create_event;

/* The driver's own functions, from the libcuda that the process has loaded. */
void wl_driver(wl_get_context context, wl_is_capturing capturing, wl_create_event create) {
    get_context = context;
    is_capturing = capturing;
    create_event = create;
}

/* 1 if `context` is current and what goes to `stream` is run, not captured into a graph; 0 if not, or if unknown. */
int wl_runs_now(void *stream, void *context) {
    void *current = NULL;
    int capturing = 0;
    if (get_context(&current) || current != context)
        return 0;
    return is_capturing(stream, &capturing) || !capturing;
}

/* Create events; return how many were made before the driver refused. */
int wl_new_events(void **events, int count, unsigned flags) {
    for (int made = 0; made < count; made++)
        if (create_event(events + made, flags))
            return made;
    return count;
}
