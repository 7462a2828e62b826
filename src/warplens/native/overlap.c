/* Measures how long each combination of groups of spans was active on an SM. analyse/overlap.py does it with numpy. */
#include <stdint.h>
#include <stdlib.h>

enum { NONE = -1 };

typedef struct {
    const int64_t *start, *duration;
    const int32_t *region, *parent;
    const uint8_t *is_span, *detached;
    const int64_t *first;   /* the first row of each track; then the number of rows */
    const int32_t *group_of; /* the group of each region, or NONE */
} columns_t;

/* One warp leaves a group and enters another at a time. */
typedef struct {
    int64_t time;
    int32_t leaves, enters;
} event_t;

/* The events of a track that are still to come. */
typedef struct {
    const event_t *next, *end;
} stream_t;

static int by_time(const void *a, const void *b) {
    int64_t left = ((const event_t *)a)->time, right = ((const event_t *)b)->time;
    return (left > right) - (left < right);
}

/* The events of one track in the order of time; `open` has room for all its rows. Returns their number. */
static int64_t events_of(const columns_t *c, int64_t track, event_t *out, int64_t *open) {
    int64_t count = 0, height = 0, last = c->first[track + 1];
    int sorted = 1;
    for (int64_t row = c->first[track]; row <= last; row++) {
        if (row < last && !c->is_span[row]) continue;
        while (height && (row == last || c->start[open[height - 1]] + c->duration[open[height - 1]] <= c->start[row])) {
            int64_t top = open[--height], parent = c->detached[top] ? NONE : c->parent[top];
            event_t end = {c->start[top] + c->duration[top], c->group_of[c->region[top]],
                           parent < 0 ? NONE : c->group_of[c->region[parent]]};
            sorted &= !count || out[count - 1].time <= end.time;
            out[count++] = end;
        }
        if (row == last) break;
        /* A span interrupts the time of the one around it. */
        int64_t parent = c->detached[row] ? NONE : c->parent[row];
        event_t begin = {c->start[row], parent < 0 ? NONE : c->group_of[c->region[parent]], c->group_of[c->region[row]]};
        sorted &= !count || out[count - 1].time <= begin.time;
        out[count++] = begin;
        open[height++] = row;
    }
    if (!sorted) qsort(out, (size_t)count, sizeof *out, by_time);
    return count;
}

/* Restore the heap, whose first entry may be later than others. */
static void sink(stream_t *heap, int64_t size) {
    stream_t moved = heap[0];
    int64_t at = 0;
    for (int64_t below; (below = 2 * at + 1) < size; at = below) {
        if (below + 1 < size && heap[below + 1].next->time < heap[below].next->time) below++;
        if (heap[below].next->time >= moved.next->time) break;
        heap[at] = heap[below];
    }
    heap[at] = moved;
}

static void rise(stream_t *heap, int64_t at) {
    for (; at && heap[at].next->time < heap[(at - 1) / 2].next->time; at = (at - 1) / 2) {
        stream_t other = heap[at];
        heap[at] = heap[(at - 1) / 2];
        heap[(at - 1) / 2] = other;
    }
}

static inline uint32_t moved(int64_t *warps, uint32_t mask, int32_t group, int64_t by) {
    if (group == NONE) return mask;
    warps[group] += by;
    return warps[group] > 0 ? mask | 1u << group : mask & ~(1u << group);
}

/* For the tracks of each place, tracks[places[p]] .. tracks[places[p + 1]], add to lasted[m] the cycles in which exactly
   the groups of bit mask m were active. Returns 0, or -1 if out of memory. */
int wl_overlap(const columns_t *c, const int64_t *tracks, const int64_t *places, int64_t count, int64_t groups,
               double *lasted) {
    int64_t rows = 0, longest = 0, most_tracks = 0;
    for (int64_t p = 0; p < count; p++) {
        int64_t here = 0;
        for (int64_t i = places[p]; i < places[p + 1]; i++) {
            int64_t length = c->first[tracks[i] + 1] - c->first[tracks[i]];
            here += length;
            if (length > longest) longest = length;
        }
        if (here > rows) rows = here;
        if (places[p + 1] - places[p] > most_tracks) most_tracks = places[p + 1] - places[p];
    }
    event_t *events = malloc((size_t)(2 * rows + 1) * sizeof *events);
    int64_t *open = malloc((size_t)(longest + 1) * sizeof *open);
    stream_t *heap = malloc((size_t)(most_tracks + 1) * sizeof *heap);
    int64_t *warps = malloc((size_t)(groups + 1) * sizeof *warps);
    int result = events && open && heap && warps ? 0 : -1;
    for (int64_t p = 0; p < count && !result; p++) {
        int64_t filled = 0, size = 0, now = 0;
        uint32_t mask = 0;
        for (int64_t g = 0; g < groups; g++) warps[g] = 0;
        for (int64_t i = places[p]; i < places[p + 1]; i++) {
            int64_t many = events_of(c, tracks[i], events + filled, open);
            if (!many) continue;
            heap[size] = (stream_t){events + filled, events + filled + many};
            rise(heap, size++);
            filled += many;
        }
        while (size) {
            const event_t *event = heap[0].next++;
            if (event->time != now) {
                if (mask) lasted[mask] += (double)(event->time - now);
                now = event->time;
            }
            mask = moved(warps, mask, event->leaves, -1);
            mask = moved(warps, mask, event->enters, 1);
            if (heap[0].next == heap[0].end) heap[0] = heap[--size];
            if (size) sink(heap, size);
        }
    }
    free(events);
    free(open);
    free(heap);
    free(warps);
    return result;
}
