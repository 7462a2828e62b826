/* Puts the durations of a block of whole tracks in the order of their regions. analyse/region_durations.py gives the same
   numbers with numpy. */
#include <stdint.h>
#include <string.h>

typedef struct {
    int64_t tracks, regions;
    const int64_t *track_start; /* of each track, from the block's first row on; then the number of rows */
    const int32_t *region;
    const uint8_t *measured;    /* whether it is a span that ended */
    const int64_t *cycles, *ns;
} block_t;

/* Store the durations of region r one after the other, in the order of rows, after those of smaller regions. `count` of
   [r][t] becomes the number of them on track t, `next` is room for one number per region. Returns the number of durations,
   or -1 if one does not fit 32 bits. */
int64_t wl_group_durations(const block_t *b, int32_t *cycles, int32_t *ns, int32_t *count, int64_t *next) {
    int64_t rows = b->track_start[b->tracks], total = 0, bits = 0;
    memset(count, 0, (size_t)(b->regions * b->tracks) * sizeof *count);
    memset(next, 0, (size_t)b->regions * sizeof *next);
    for (int64_t t = 0; t < b->tracks; t++)
        for (int64_t row = b->track_start[t]; row < b->track_start[t + 1]; row++)
            if (b->measured[row]) {
                count[b->region[row] * b->tracks + t]++;
                next[b->region[row]]++;
                bits |= b->cycles[row] | b->ns[row];
            }
    if (bits < 0 || bits > INT32_MAX) return -1;
    for (int64_t r = 0; r < b->regions; r++) {
        int64_t here = next[r];
        next[r] = total;
        total += here;
    }
    for (int64_t row = 0; row < rows; row++)
        if (b->measured[row]) {
            int64_t at = next[b->region[row]]++;
            cycles[at] = (int32_t)b->cycles[row];
            ns[at] = (int32_t)b->ns[row];
        }
    return total;
}
