/* Adds up what each track of a block spent in each region. analyse/region_cells.py gives the same numbers with numpy. */
#include <stdint.h>
#include <string.h>

typedef struct {
    int64_t tracks, regions, first; /* `first` is the row of the trace that the block begins with */
    const int64_t *track_start;     /* of each track, from the block's first row on; then the number of rows */
    const int64_t *start, *duration, *start_ns, *duration_ns;
    const int32_t *region, *parent;
    const int16_t *depth;
    const uint8_t *is_span;
} block_t;

/* One entry per track and region with spans: as many as there are rows at most. */
typedef struct {
    int64_t *track, *region, *count, *duration, *exclusive, *own, *ns, *first_ns, *last_ns;
} cells_t;

/* The first and last moment of each track. */
typedef struct {
    int64_t *begin, *finish, *begin_ns, *finish_ns;
} extents_t;

static inline int64_t end_of(const block_t *b, int64_t row) { return b->start[row] + b->duration[row]; }

/* A span that overlaps the next row of its track, or outlives its parent, runs beside its track. */
static inline int is_detached(const block_t *b, int64_t row, int64_t last) {
    if (!b->is_span[row]) return 0;
    if (row + 1 < last && b->start[row + 1] < end_of(b, row) && b->depth[row + 1] <= b->depth[row]) return 1;
    return b->parent[row] >= b->first && end_of(b, row) > end_of(b, b->parent[row] - b->first);
}

/* `inner` and `detached` have room for each row; `cell_of` has -1 for each region, before and after. Returns the number
   of cells. */
int64_t wl_region_cells(const block_t *b, uint8_t *detached, int64_t *inner, int64_t *cell_of, const cells_t *c,
                        const extents_t *e) {
    int64_t count = 0;
    for (int64_t t = 0; t < b->tracks; t++) {
        int64_t first = b->track_start[t], last = b->track_start[t + 1], before = count;
        memset(inner + first, 0, (size_t)(last - first) * sizeof *inner);
        e->begin[t] = e->begin_ns[t] = INT64_MAX;
        e->finish[t] = e->finish_ns[t] = INT64_MIN;
        for (int64_t row = first; row < last; row++) {
            int64_t end = end_of(b, row), end_ns = b->start_ns[row] + b->duration_ns[row];
            if (b->start[row] < e->begin[t]) e->begin[t] = b->start[row];
            if (end > e->finish[t]) e->finish[t] = end;
            if (b->start_ns[row] < e->begin_ns[t]) e->begin_ns[t] = b->start_ns[row];
            if (end_ns > e->finish_ns[t]) e->finish_ns[t] = end_ns;
            detached[row] = (uint8_t)is_detached(b, row, last);
            if (b->is_span[row] && !detached[row] && b->parent[row] >= b->first)
                inner[b->parent[row] - b->first] += b->duration[row];
        }
        for (int64_t row = first; row < last; row++) {
            if (!b->is_span[row]) continue;
            int64_t *cell = cell_of + b->region[row], end_ns = b->start_ns[row] + b->duration_ns[row];
            int64_t exclusive = b->duration[row] > inner[row] ? b->duration[row] - inner[row] : 0;
            if (*cell < 0) {
                *cell = count++;
                c->track[*cell] = t;
                c->region[*cell] = b->region[row];
                c->count[*cell] = c->duration[*cell] = c->exclusive[*cell] = c->own[*cell] = c->ns[*cell] = 0;
                c->first_ns[*cell] = INT64_MAX;
                c->last_ns[*cell] = INT64_MIN;
            }
            c->count[*cell]++;
            c->duration[*cell] += b->duration[row];
            c->exclusive[*cell] += exclusive;
            if (!detached[row]) c->own[*cell] += exclusive;
            c->ns[*cell] += b->duration_ns[row];
            if (b->start_ns[row] < c->first_ns[*cell]) c->first_ns[*cell] = b->start_ns[row];
            if (end_ns > c->last_ns[*cell]) c->last_ns[*cell] = end_ns;
        }
        for (int64_t cell = before; cell < count; cell++) cell_of[c->region[cell]] = -1;
    }
    return count;
}
