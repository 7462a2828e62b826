/* Adds up over time which region each track was in. analyse/timeline.py gives the same times with numpy. */
#include <stdint.h>

typedef struct {
    int64_t tracks;
    const int64_t *track_start; /* of each track, from the block's first row on; then the number of rows */
    const int64_t *line;        /* the line of each track, or -1 for none */
    const int64_t *start, *duration;
    const int32_t *region;
    const uint8_t *is_span;
} block_t;

/* `time` is [line, region, bin] from `begin` to `end`. */
typedef struct {
    int64_t regions, bins, begin, end;
    double *time;
} strips_t;

/* Add a stretch of time to its bins: the first and the last partly, those between in full. */
static inline void add(const strips_t *s, double *bins, int64_t begin, int64_t end) {
    if (begin < s->begin) begin = s->begin;
    if (end > s->end) end = s->end;
    if (end <= begin) return;
    double width = (double)(s->end - s->begin) / (double)s->bins, low = (double)(begin - s->begin), high = (double)(end - s->begin);
    int64_t first = (int64_t)(low / width), last = (int64_t)(high / width);
    if (first >= s->bins) first = s->bins - 1;
    if (last >= s->bins) last = s->bins - 1;
    if (first == last) {
        bins[first] += high - low;
        return;
    }
    bins[first] += (double)(first + 1) * width - low;
    for (int64_t bin = first + 1; bin < last; bin++) bins[bin] += width;
    bins[last] += high - (double)last * width;
}

/* At any time the innermost span is the one that began last and still runs. `open` has room for the rows of a track.
   Returns 0, or -1 where the spans of a track are not in the order of their begins. */
int wl_strips(const block_t *b, const strips_t *s, int64_t *open) {
    for (int64_t t = 0; t < b->tracks; t++) {
        if (b->line[t] < 0) continue;
        double *line = s->time + b->line[t] * s->regions * s->bins;
        int64_t height = 0, now = INT64_MIN, before = INT64_MIN, last = b->track_start[t + 1];
        for (int64_t row = b->track_start[t]; row <= last; row++) {
            if (row < last && (!b->is_span[row] || b->duration[row] <= 0)) continue;
            int64_t until = row < last ? b->start[row] : INT64_MAX;
            while (height && now < until) {
                int64_t top = open[height - 1], end = b->start[top] + b->duration[top];
                int64_t stop = end < until ? end : until;
                if (stop > now) {
                    add(s, line + b->region[top] * s->bins, now, stop);
                    now = stop;
                }
                if (end > until) break;
                height--;
            }
            if (row == last) break;
            if (until < before) return -1;
            before = until;
            if (until > now) now = until;
            open[height++] = row;
        }
    }
    return 0;
}
