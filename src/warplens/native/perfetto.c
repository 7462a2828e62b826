/* Writes the rows of a trace as Perfetto TrackEvent packets. export/events.py gives the same bytes with numpy. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SPAN, INSTANT };
/* LEFT_OUT: no parent, or one removed by a selection, so use the depth. NONE: never nested. */
enum { LEFT_OUT = -1, NONE = -2 };
enum { TYPE_BEGIN = 1, TYPE_END = 2, TYPE_INSTANT = 3 };
enum { BUFFER_BYTES = 1 << 20, MOST_PACKET_BYTES = 128 };

/* Columns of the whole trace; `cycles` and `open` may be null. Ends are start + duration. */
typedef struct {
    const int8_t *kind;
    const int32_t *region, *parent;
    const int16_t *depth;
    const int64_t *start, *duration, *cycles;
    const uint8_t *open;
} columns_t;

enum { GROUP = 64 };

/* A lane shows nested spans: its open rows and the time of its last event. The first lane of each group of lanes also
   knows a time before which no span of the group's lanes ends, apart from lane 0. */
typedef struct {
    int64_t *open;
    int64_t height, room;
    uint64_t now;
    int64_t busy_until;
} lane_t;

typedef struct {
    const columns_t *rows;
    int64_t first, last; /* rows of the track being walked */
    int32_t *lane_of;    /* by row, from the first row of the call */
    int64_t base;        /* that first row */
    lane_t *lanes;
    int64_t count, room; /* lanes used by this track; lanes allocated */
    int64_t most;        /* how deep a lane may nest */
    uint8_t *buffer;     /* null when only lanes are wanted */
    int64_t filled;
    int file, failed;
    uint32_t sequence; /* of the track's lane 0 */
} walk_t;

static inline int64_t end_of(const columns_t *rows, int64_t row) { return rows->start[row] + rows->duration[row]; }

static inline uint8_t *varint(uint8_t *at, uint64_t value) {
    while (value > 127) {
        *at++ = (uint8_t)(value | 128);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

static void flush(walk_t *w) {
    for (int64_t done = 0; done < w->filled && !w->failed;) {
        ssize_t n = write(w->file, w->buffer + done, w->filled - done);
        if (n >= 0)
            done += n;
        else if (errno != EINTR)
            w->failed = errno;
    }
    w->filled = 0;
}

/* Lengths are filled in afterwards. No packet reaches 128 bytes, so each length is one byte. */
static void emit(walk_t *w, int64_t lane, int64_t row, int type, int64_t time) {
    if (!w->buffer) return;
    if (w->filled > BUFFER_BYTES - MOST_PACKET_BYTES) flush(w);
    uint8_t *packet = w->buffer + w->filled, *at = packet;
    lane_t *l = &w->lanes[lane];
    *at++ = 0x0a; /* Trace.packet */
    at++;
    *at++ = 0x50; /* TracePacket.trusted_packet_sequence_id */
    at = varint(at, w->sequence + (uint32_t)lane);
    *at++ = 0x40; /* TracePacket.timestamp, since the sequence's last */
    at = varint(at, (uint64_t)time - l->now);
    l->now = (uint64_t)time;
    *at++ = 0x5a; /* TracePacket.track_event */
    uint8_t *event = at++;
    *at++ = 0x48; /* TrackEvent.type */
    *at++ = (uint8_t)type;
    if (type != TYPE_END) {
        *at++ = 0x50; /* TrackEvent.name_iid */
        at = varint(at, (uint64_t)w->rows->region[row] + 1);
        if (w->rows->cycles && w->rows->kind[row] == SPAN) {
            *at++ = 0x22; /* TrackEvent.debug_annotations { name_iid: 1, int_value } */
            uint8_t *annotation = at++;
            *at++ = 0x08;
            *at++ = 1;
            *at++ = 0x20;
            at = varint(at, (uint64_t)w->rows->cycles[row]);
            *annotation = (uint8_t)(at - annotation - 1);
            if (w->rows->open[row]) {
                static const uint8_t open[] = {0x22, 4, 0x08, 2, 0x10, 1}; /* { name_iid: 2, bool_value: true } */
                memcpy(at, open, sizeof open);
                at += sizeof open;
            }
        }
    }
    *event = (uint8_t)(at - event - 1);
    packet[1] = (uint8_t)(at - packet - 2);
    w->filled += at - packet;
}

/* Close the spans that ended before `row`. A span that ends when `row` starts stays open if `row` is nested in it. */
static inline void close_ended(walk_t *w, int64_t lane, int64_t row) {
    lane_t *l = &w->lanes[lane];
    while (l->height) {
        int64_t top = l->open[l->height - 1], end = end_of(w->rows, top);
        if (end > w->rows->start[row] || (end == w->rows->start[row] && w->rows->depth[top] < w->rows->depth[row])) return;
        l->height--;
        emit(w, lane, top, TYPE_END, end);
    }
}

/* The next span or instant after `row`, or the end of the track. */
static inline int64_t next_shown(const walk_t *w, int64_t row) {
    for (row++; row < w->last && w->rows->kind[row] > INSTANT;) row++;
    return row;
}

/* Whether it is asynchronous or outlives its parent, and would push later rows off the track's own lane. */
static inline int is_loose(const walk_t *w, int64_t row, int64_t parent) {
    const columns_t *r = w->rows;
    if (r->kind[row] != SPAN) return 0;
    int64_t end = end_of(r, row);
    if (parent >= 0 && end > end_of(r, parent)) return 1;
    int64_t next = next_shown(w, row);
    return next < w->last && r->depth[next] <= r->depth[row] && r->start[next] < end;
}

static inline int fits(walk_t *w, int64_t lane, int64_t row, int64_t parent) {
    close_ended(w, lane, row);
    const lane_t *l = &w->lanes[lane];
    if (!l->height) return 1;
    int64_t top = l->open[l->height - 1];
    int inside = parent == LEFT_OUT ? !lane && w->rows->depth[top] < w->rows->depth[row] : top == parent;
    return inside && end_of(w->rows, row) <= end_of(w->rows, top) && l->height < w->most;
}

static int add_lane(walk_t *w) {
    if (w->count == w->room) {
        lane_t *more = realloc(w->lanes, 2 * w->room * sizeof *more);
        if (!more) return -1;
        memset(more + w->room, 0, w->room * sizeof *more);
        w->lanes = more;
        w->room *= 2;
    }
    w->lanes[w->count - w->count % GROUP].busy_until = INT64_MIN;
    w->lanes[w->count].height = 0;
    w->lanes[w->count++].now = 0;
    return 0;
}

/* The first lane but lane 0 on which nothing is open at the start of `row`, or the number of lanes. */
static int64_t free_lane(walk_t *w, int64_t row) {
    for (int64_t lane = 1; lane < w->count;) {
        lane_t *head = &w->lanes[lane - lane % GROUP];
        int64_t stop = lane - lane % GROUP + GROUP, soonest = INT64_MAX;
        if (stop > w->count) stop = w->count;
        if (head->busy_until > w->rows->start[row]) {
            lane = stop;
            continue;
        }
        for (; lane < stop; lane++) {
            if (fits(w, lane, row, NONE)) return lane;
            int64_t end = end_of(w->rows, w->lanes[lane].open[w->lanes[lane].height - 1]);
            if (end < soonest) soonest = end;
        }
        head->busy_until = soonest;
    }
    return w->count;
}

static int push(walk_t *w, int64_t lane, int64_t row) {
    lane_t *l = &w->lanes[lane], *head = &w->lanes[lane - lane % GROUP];
    int64_t end = end_of(w->rows, row);
    if (end < head->busy_until) head->busy_until = end;
    if (l->height == l->room) {
        int64_t room = l->room ? 2 * l->room : 16;
        int64_t *more = realloc(l->open, room * sizeof *more);
        if (!more) return -1;
        l->open = more;
        l->room = room;
    }
    l->open[l->height++] = row;
    return 0;
}

static int walk_track(walk_t *w) {
    const columns_t *r = w->rows;
    w->count = 0;
    if (add_lane(w)) return -1;
    for (int64_t row = w->first; row < w->last; row++) {
        int32_t *lane_of = w->lane_of - w->base;
        lane_of[row] = 0;
        if (r->kind[row] > INSTANT) continue;
        int64_t parent = r->parent[row];
        if (parent != LEFT_OUT && (parent < w->first || parent >= row)) parent = NONE;
        int64_t lane = parent < 0 ? 0 : lane_of[parent];
        if (is_loose(w, row, parent) || !fits(w, lane, row, parent)) {
            lane = free_lane(w, row);
            if (lane == w->count && add_lane(w)) return -1;
        }
        lane_of[row] = (int32_t)lane;
        if (r->kind[row] == INSTANT) {
            /* Perfetto would nest a row at the same time inside an instant, so write a begin and an end instead. */
            int64_t next = next_shown(w, row);
            int tied = next < w->last && r->start[next] == r->start[row];
            emit(w, lane, row, tied ? TYPE_BEGIN : TYPE_INSTANT, r->start[row]);
            if (tied) emit(w, lane, row, TYPE_END, r->start[row]);
            continue;
        }
        emit(w, lane, row, TYPE_BEGIN, r->start[row]);
        if (push(w, lane, row)) return -1;
    }
    for (int64_t lane = 0; lane < w->count; lane++)
        for (lane_t *l = &w->lanes[lane]; l->height;) {
            int64_t top = l->open[--l->height];
            emit(w, lane, top, TYPE_END, end_of(r, top));
        }
    return 0;
}

/* Assign a lane to each row of `tracks` tracks, whose rows are row_start[t] .. row_start[t + 1], and count the lanes of
   each track. With `sequence` (of each track's lane 0), also write the packets to `file`.
   Returns 0, -1 if out of memory, or the errno of a failed write. */
int wl_tracks(const columns_t *rows, const int64_t *row_start, int64_t tracks, int64_t most, int32_t *lane_of,
              int32_t *lanes, const uint32_t *sequence, int file) {
    walk_t w = {.rows = rows, .lane_of = lane_of, .base = row_start[0], .most = most, .room = 4, .file = file};
    w.lanes = calloc(w.room, sizeof *w.lanes);
    if (sequence) w.buffer = malloc(BUFFER_BYTES);
    int result = !w.lanes || (sequence && !w.buffer) ? -1 : 0;
    for (int64_t t = 0; t < tracks && !result; t++) {
        w.first = row_start[t];
        w.last = row_start[t + 1];
        if (sequence) w.sequence = sequence[t];
        result = walk_track(&w);
        lanes[t] = (int32_t)w.count;
        if (w.failed) result = w.failed;
    }
    if (!result && sequence) {
        flush(&w);
        result = w.failed;
    }
    for (int64_t i = 0; w.lanes && i < w.room; i++) free(w.lanes[i].open);
    free(w.lanes);
    free(w.buffer);
    return result;
}
