/* Calls of threads that Python does not know.

   Such a thread must not wait for Python's lock: a thread that holds it may be waiting for this one. The call is handed
   to a thread of Python's instead. If that does not take it in time, or does not come to an end, the call is withdrawn
   and goes to the driver as it is. */
#include "hooks.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { QUEUED, TAKEN, MADE, WITHDRAWN };

typedef struct request {
    wl_call call; /* first: Python has its address */
    int state, finished, holders;
    struct request *next;
} request;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queued = PTHREAD_COND_INITIALIZER, changed = PTHREAD_COND_INITIALIZER;
static request *first, **last = &first;
static int open_for_calls, busy, take_ms = 200, finish_ms = 20000;
static int patience = 200; /* how long the next call waits to be taken: less after each that was not */

static struct timespec after(int ms) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += ms / 1000, at.tv_nsec += (ms % 1000) * 1000000l;
    if (at.tv_nsec >= 1000000000l) at.tv_sec++, at.tv_nsec -= 1000000000l;
    return at;
}

static int is_over(const struct timespec *limit) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec > limit->tv_sec || (now.tv_sec == limit->tv_sec && now.tv_nsec >= limit->tv_nsec);
}

static void release(request *one) {
    if (--one->holders == 0) free(one);
}

static void unlink_request(request *one) {
    for (request **at = &first; *at; at = &(*at)->next)
        if (*at == one) {
            *at = one->next;
            break;
        }
    for (last = &first; *last; last = &(*last)->next) {
    }
}

void wl_answer_elsewhere(wl_call *call) {
    request *one = calloc(1, sizeof *one);
    if (!one) return;
    pthread_mutex_lock(&lock);
    if (!open_for_calls) {
        pthread_mutex_unlock(&lock);
        free(one);
        return;
    }
    one->call = *call, one->holders = 2;
    *last = one, last = &one->next;
    pthread_cond_signal(&queued);
    struct timespec taken_by = after(patience), finished_by = after(finish_ms);
    while (!one->finished) {
        const struct timespec *limit = one->state == QUEUED ? &taken_by : &finished_by;
        int timed_out = one->state == MADE ? pthread_cond_wait(&changed, &lock)
                                           : pthread_cond_timedwait(&changed, &lock, limit);
        if (timed_out == ETIMEDOUT && one->state == QUEUED && busy && !is_over(&finished_by)) {
            taken_by = after(patience); /* Python answers another thread: it is not stuck, or that one gives up */
            continue;
        }
        if (timed_out == ETIMEDOUT && one->state < MADE && !one->finished) {
            if (one->state == QUEUED) {
                unlink_request(one);
                one->holders--; /* nobody else will hold it */
                patience = patience > 4 ? patience / 4 : 1;
            }
            one->state = WITHDRAWN;
            break;
        }
    }
    if (one->finished) call->done = one->call.done, call->status = one->call.status;
    release(one);
    pthread_mutex_unlock(&lock);
}

/* Ask for memory for further launches like this one, and do not wait for it. */
void wl_ask_to_refill(const wl_call *call) {
    request *one = calloc(1, sizeof *one);
    if (!one) return;
    one->call = *call, one->call.kind = WL_REFILL, one->call.context = wl_current_context(), one->holders = 1;
    one->call.params = one->call.extra = one->call.config = NULL;
    pthread_mutex_lock(&lock);
    if (open_for_calls) {
        *last = one, last = &one->next;
        pthread_cond_signal(&queued);
        one = NULL;
    }
    pthread_mutex_unlock(&lock);
    free(one);
}

/* How long a call may wait until it is taken, and until it is answered. */
void wl_hooks_patience(int until_taken_ms, int until_finished_ms) {
    take_ms = patience = until_taken_ms, finish_ms = until_finished_ms;
}

/* Accept calls, or let nobody wait any longer. */
void wl_hooks_serve(int open) {
    pthread_mutex_lock(&lock);
    open_for_calls = open;
    while (!open && first) {
        request *one = first;
        unlink_request(one);
        one->finished = 1;
        release(one);
    }
    pthread_cond_broadcast(&queued), pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* The next call, waiting for one at most `ms`; null if there is none. wl_hooks_take must follow. */
wl_call *wl_hooks_next(int ms) {
    pthread_mutex_lock(&lock);
    struct timespec limit = after(ms);
    while (open_for_calls && !first)
        if (pthread_cond_timedwait(&queued, &lock, &limit) == ETIMEDOUT) break;
    request *one = open_for_calls ? first : NULL;
    pthread_mutex_unlock(&lock);
    return one ? &one->call : NULL;
}

/* Take a call. Called with Python's lock held, so whoever takes it can answer it. Returns 0 if it is gone. */
int wl_hooks_take(wl_call *call) {
    int taken = 0;
    pthread_mutex_lock(&lock);
    for (request *one = first; one; one = one->next)
        if (&one->call == call) {
            unlink_request(one);
            one->state = TAKEN, taken = busy = 1, patience = take_ms;
            break;
        }
    pthread_mutex_unlock(&lock);
    return taken;
}

/* The answer is there. */
void wl_hooks_finish(wl_call *call) {
    request *one = (request *)call;
    pthread_mutex_lock(&lock);
    one->finished = 1, busy = 0;
    release(one);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Make a call that was taken, unless the thread has given up and made it itself: 1 then. */
int wl_hooks_make_taken(wl_call *call, uint64_t function, void **params) {
    request *one = (request *)call;
    pthread_mutex_lock(&lock);
    int gone = one->state == WITHDRAWN;
    if (!gone) one->state = MADE;
    pthread_mutex_unlock(&lock);
    if (!gone) wl_make_call(call, function, params);
    return gone;
}
