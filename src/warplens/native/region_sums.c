/* Adds up the durations of a block of whole tracks by group. analyse/region_sums.py gives the same numbers with numpy. */
#include <stdint.h>
#include <string.h>

typedef struct {
    int64_t rows, first;          /* the rows of the block, and the row of the trace that it begins with */
    const int32_t *key, *parent;  /* the group of each row, and its parent, a row of the trace */
    const uint8_t *measured;      /* whether it is a span that ended */
    int64_t tracks;
    const int64_t *track_start;   /* of each track, from the block's first row on; then the number of rows */
    int64_t groups, width;
} block_t;

/* For each group: `shares[g][d]` counts durations d below `width`, `exclusive[g]` adds up what lies outside inner spans.
   `count` and `total` of [g][t] are those of track t; they may be null. Longer durations are stored one after the other
   in `longer`, with their groups. `inner` is room for one number per row. Returns the number of longer durations. */
int64_t wl_region_sums(const block_t *b, const int64_t *durations, int64_t *inner, int64_t *shares, int64_t *exclusive,
                       int64_t *count, int64_t *total, int64_t *longer, int32_t *longer_group) {
    int64_t many = 0;
    memset(inner, 0, (size_t)b->rows * sizeof *inner);
    for (int64_t row = 0; row < b->rows; row++)
        if (b->measured[row] && b->parent[row] >= b->first) inner[b->parent[row] - b->first] += durations[row];
    for (int64_t t = 0; t < b->tracks; t++)
        for (int64_t row = b->track_start[t]; row < b->track_start[t + 1]; row++) {
            if (!b->measured[row]) continue;
            int64_t duration = durations[row], group = b->key[row];
            /* Asynchronous children may outlive their parent. */
            if (duration > inner[row]) exclusive[group] += duration - inner[row];
            if (duration < b->width)
                shares[group * b->width + duration]++;
            else {
                longer[many] = duration;
                longer_group[many++] = (int32_t)group;
            }
            if (count) {
                count[group * b->tracks + t]++;
                total[group * b->tracks + t] += duration;
            }
        }
    return many;
}
