/* Launches of woven kernels whose memory is at hand: made here, so that the launching thread needs no Python.

   Python offers launches of one kernel and shape together. Their array is Python's: it reads there which were made. */
#include "hooks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUCKETS 1024
#define MOST_PARAMETERS 1024

enum { FREE, TAKEN, MADE, REFUSED };

typedef struct shelf {
    uint64_t function;
    uint32_t shape[7];
    int parameters, users, open;
    uint64_t context, twin;
    wl_ready *launches;
    int64_t taken, count;
    struct shelf *next;
} shelf;

static shelf *buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unused = PTHREAD_COND_INITIALIZER;
static _Atomic int shelves, suspended;
uint64_t wl_ready_taken; /* of all launches, how many were taken */
static int (*get_context)(void **);
static int (*is_capturing)(void *, int *);
static int (*record_event)(void *, void *);

/* What a launch asks of the driver. */
void wl_ready_driver(void *context, void *capturing, void *record) {
    get_context = (int (*)(void **))context, is_capturing = (int (*)(void *, int *))capturing;
    record_event = (int (*)(void *, void *))record;
}

uint64_t wl_current_context(void) {
    void *library = get_context ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *context = NULL;
    if (library) get_context = (int (*)(void **))dlsym(library, "cuCtxGetCurrent");
    return get_context && !get_context(&context) ? (uint64_t)(uintptr_t)context : 0;
}

static shelf **bucket(uint64_t function) { return &buckets[(function >> 3) * 0x9e3779b97f4a7c15ull >> 54]; }

/* Launches of a function with this shape, in a context. Gives a handle, or null. */
void *wl_ready_offer(uint64_t function, const uint32_t *shape, uint64_t context, uint64_t twin, int parameters,
                     wl_ready *launches, int64_t count) {
    shelf *one = parameters < MOST_PARAMETERS ? calloc(1, sizeof *one) : NULL;
    if (!one) return NULL;
    *one = (shelf){.function = function, .parameters = parameters, .open = 1, .context = context, .twin = twin,
                   .launches = launches, .count = count};
    memcpy(one->shape, shape, sizeof one->shape);
    pthread_mutex_lock(&lock);
    shelf **at = bucket(function);
    while (*at) at = &(*at)->next; /* what was offered first is used first */
    *at = one;
    shelves++;
    pthread_mutex_unlock(&lock);
    return one;
}

/* Take launches back, once those under way are made. Called without Python's lock: they may need it. */
void wl_ready_withdraw(void *handle) {
    shelf *one = handle;
    pthread_mutex_lock(&lock);
    shelf **at = bucket(one->function);
    while (*at && *at != one) at = &(*at)->next;
    if (*at) *at = one->next, shelves--;
    while (one->users) pthread_cond_wait(&unused, &lock);
    pthread_mutex_unlock(&lock);
    free(one);
}

/* Let nothing be recorded here, until the same is called with -1. */
void wl_ready_suspend(int more) { suspended += more; }

/* A module is gone, and the handles of its functions may be given out again. */
void wl_close_ready(uint64_t function) {
    pthread_mutex_lock(&lock);
    for (shelf *one = *bucket(function); one; one = one->next)
        if (one->function == function) one->open = 0;
    pthread_mutex_unlock(&lock);
}

static int runs_now(const wl_call *call) {
    int capturing = 0;
    return is_capturing((void *)(uintptr_t)call->stream, &capturing) || !capturing;
}

static shelf *find(const wl_call *call) {
    uint32_t shape[7];
    uint64_t context = *bucket(call->function) ? wl_current_context() : 0;
    memcpy(shape, call->grid, 12), memcpy(shape + 3, call->block, 12), shape[6] = call->shared;
    for (shelf *one = *bucket(call->function); one; one = one->next)
        if (one->function == call->function && one->open && one->taken < one->count &&
            one->context == context && !memcmp(one->shape, shape, sizeof shape))
            return one;
    return NULL;
}

static int64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return at.tv_sec * 1000000000ll + at.tv_nsec;
}

/* Make a launch with memory that is at hand. Returns 0 where Python must decide. */
int wl_launch_ready(wl_call *call) {
    if (!shelves || suspended || (call->extra && !call->params)) return 0;
    pthread_mutex_lock(&lock);
    shelf *one = find(call);
    if (one && !runs_now(call)) one = NULL;
    wl_ready *launch = one ? &one->launches[one->taken++] : NULL;
    if (launch) launch->state = TAKEN, launch->number = ++wl_ready_taken, one->users++;
    int low = one && one->count - one->taken == one->count / 2;
    pthread_mutex_unlock(&lock);
    if (!launch) return 0;
    void *given[MOST_PARAMETERS];
    if (one->parameters) memcpy(given, call->params, one->parameters * sizeof *given);
    given[one->parameters] = &launch->pointer;
    launch->stream = call->stream, launch->time_ns = now();
    int refused = wl_make_call(call, one->twin, given);
    if (!refused) launch->status = record_event((void *)(uintptr_t)launch->event, (void *)(uintptr_t)call->stream);
    pthread_mutex_lock(&lock);
    launch->state = refused ? REFUSED : MADE;
    if (refused) one->open = 0, call->done = 0; /* Python tries it once more, and says what is wrong */
    if (!--one->users) pthread_cond_broadcast(&unused);
    pthread_mutex_unlock(&lock);
    /* A thread of Python's gets more when nothing is left: a thread beside it would only take Python's lock from it. */
    if (low && !refused && !wl_is_python_thread()) wl_ask_to_refill(call);
    return !refused;
}
