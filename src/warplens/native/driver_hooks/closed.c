/* Launches that Python has nothing more to do with: counted here, so that they cost next to nothing. */
#include "hooks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096

typedef struct closed {
    uint64_t function, context; /* 0: every context */
    uint32_t shape[7];          /* all 0: every shape */
    uint64_t count;
    struct closed *next;
} closed;

static closed *buckets[BUCKETS];
static closed **listed;
static int64_t known, room;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const uint32_t every[7];

static closed **bucket(uint64_t function, const uint32_t *shape) {
    uint64_t hash = function >> 3;
    for (int i = 0; i < 7; i++) hash = (hash ^ shape[i]) * 0x100000001b3ull;
    return &buckets[hash * 0x9e3779b97f4a7c15ull >> 52];
}

static int is_same(const closed *one, uint64_t function, const uint32_t *shape) {
    return one->function == function && !memcmp(one->shape, shape, sizeof one->shape);
}

static closed *find(uint64_t function, const uint32_t *shape) {
    closed *one = *bucket(function, shape);
    while (one && !(is_same(one, function, shape) && (!one->context || one->context == wl_current_context())))
        one = one->next;
    return one;
}

int wl_is_closed(const wl_call *call) {
    uint32_t shape[7];
    memcpy(shape, call->grid, 12), memcpy(shape + 3, call->block, 12), shape[6] = call->shared;
    pthread_mutex_lock(&lock);
    closed *one = known ? find(call->function, shape) : NULL;
    if (!one && known) one = find(call->function, every);
    if (one) one->count++;
    pthread_mutex_unlock(&lock);
    return one != NULL;
}

/* Ask no more about launches of a function with this shape, or with any if there is none, in a context, or in any if it
   is 0: a library's kernel has one handle for all. Gives a number for wl_hooks_count, or -1. */
int64_t wl_hooks_close(uint64_t function, const uint32_t *shape, uint64_t context) {
    int64_t number = -1;
    pthread_mutex_lock(&lock);
    closed *one = find(function, shape ? shape : every);
    if (!one && (one = calloc(1, sizeof *one))) {
        one->function = function, one->context = context;
        if (shape) memcpy(one->shape, shape, sizeof one->shape);
        closed **at = bucket(function, one->shape);
        one->next = *at, *at = one;
        if (known == room) {
            closed **larger = realloc(listed, (size_t)(room * 2 + 64) * sizeof *listed);
            if (larger) listed = larger, room = room * 2 + 64;
        }
        if (known < room) number = known, listed[known++] = one;
    }
    pthread_mutex_unlock(&lock);
    return number;
}

uint64_t wl_hooks_count(int64_t number) {
    pthread_mutex_lock(&lock);
    uint64_t count = number >= 0 && number < known ? listed[number]->count : 0;
    pthread_mutex_unlock(&lock);
    return count;
}

/* Ask about every launch again. */
void wl_hooks_reopen(void) {
    pthread_mutex_lock(&lock);
    for (int64_t i = 0; i < known; i++) free(listed[i]);
    memset(buckets, 0, sizeof buckets);
    known = 0;
    pthread_mutex_unlock(&lock);
}

/* A module is gone, and its functions' handles may be given out again: ask about them. Entries stay in the list of
   counts. */
void wl_reopen_function(uint64_t function) {
    wl_close_ready(function);
    pthread_mutex_lock(&lock);
    for (int i = 0; known && i < BUCKETS; i++)
        for (closed **at = &buckets[i]; *at;)
            if ((*at)->function == function) *at = (*at)->next;
            else at = &(*at)->next;
    pthread_mutex_unlock(&lock);
}
