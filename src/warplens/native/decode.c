/* Decodes tracks into spans. Tests check that decode/numpy_decoder.py gives the same rows. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>

typedef struct {
    uint32_t word0, clock;
} record_t;

/* The slots of one track that hold records: `slots` slots from `first` on, wrapping at the track's capacity. */
typedef struct {
    const uint8_t *raw;
    int64_t capacity, first, slots;
} window_t;

enum { SEARCH_LIMIT = 64, WRAP_BITS = 32 };
static const uint32_t BACKWARD = 0xFFFF0000u; /* a delta above this is a small step back, not a 2-second gap */

enum { ORPHAN_ENDS, MISMATCHED_ENDS, EMPTY_SLOTS, TORN_PAYLOADS, UNKNOWN_REGIONS, CLOCK_BACKWARD, OPEN_SPANS,
       CLOCK_AMBIGUOUS, DAMAGED_RECORDS, COUNTERS };
enum { ROW_INSTANT = 1, ROW_VALUE = 2, ROW_DAMAGED = 3 };
enum { DETAIL_FIELDS = 5, MAX_DETAILS = 32 };

static inline record_t slot_at(const window_t *w, int64_t i) {
    int64_t at = w->first + i;
    if (at >= w->capacity) at -= w->capacity;
    record_t r;
    memcpy(&r, w->raw + at * WL_SLOT_BYTES, sizeof r);
    return r;
}

static inline uint32_t kind_of(record_t r) { return r.word0 & ((1u << WL_REGION_SHIFT) - 1); }
static inline uint32_t region_of(record_t r) { return (r.word0 >> WL_REGION_SHIFT) & WL_MAX_REGION; }
static inline uint32_t tag_of(record_t r) { return r.word0 >> WL_TAG_SHIFT; }

/* The kind of a record. An anchor whose tag is a kind is a record of that kind with its 64-bit clock as payload. */
enum { KIND_CLOCK = 8 };
static inline uint32_t meaning_of(record_t r) {
    uint32_t kind = kind_of(r), tag = tag_of(r);
    if (kind != WL_KIND_ANCHOR) return kind;
    if (tag == WL_KIND_BEGIN || tag == WL_KIND_END || tag == WL_KIND_INSTANT) return tag;
    return tag == WL_KIND_ANCHOR ? KIND_CLOCK : WL_KIND_ANCHOR;
}
static inline int has_payload(uint32_t kind) { return kind == WL_KIND_VALUE || kind == WL_KIND_ANCHOR; }

/* Payload slots hold arbitrary bits, so only a walk back from the newest record can distinguish them from records. */
static void find_payloads(const window_t *w, uint8_t *is_payload) {
    memset(is_payload, 0, w->slots);
    for (int64_t i = w->slots - 1; i > 0; i--)
        if (has_payload(kind_of(slot_at(w, i)))) is_payload[--i] = 1;
}

/* Flags of a track: PAYLOADS requires the walk back, NEEDS_WALK means that decode_plain cannot decode it. */
enum { PAYLOADS = 1, NEEDS_WALK = 2 };
static const uint32_t PAYLOAD_KINDS = 1u << WL_KIND_VALUE | 1u << WL_KIND_ANCHOR;
static const uint32_t PLAIN_KINDS = 1u << WL_KIND_BEGIN | 1u << WL_KIND_END | 1u << WL_KIND_INSTANT;

static const uint8_t gives_row[KIND_CLOCK + 1] = {
    [WL_KIND_BEGIN] = 1, [WL_KIND_INSTANT] = 1, [WL_KIND_VALUE] = 1, [WL_KIND_ASYNC_BEGIN] = 1};

/* One launch whose headers are read. */
typedef struct {
    const uint8_t *raw;
    int64_t stride, tracks, capacity, blocks, warps, ring;
    double rate; /* of a track whose timer did not advance */
} headers_t;

/* What the headers of tracks say, a column for each field of decode/track_windows.py. */
typedef struct {
    int64_t *offset, *slots, *written, *block, *warp, *lane, *sm, *start_clock, *start_ns, *exit_clock, *exit_ns,
        *first;
    uint8_t *exited, *lossy, *from_exit;
    double *rate;
} windows_t;

static inline uint64_t field_at(const uint8_t *track, int at, int size) {
    uint64_t value = 0;
    memcpy(&value, track + at, size);
    return value;
}
#define FIELD(name) field_at(track, WL_HEADER_##name, WL_HEADER_SIZE_##name)

/* Read the headers of launches into the columns from track `t` on. Returns 1 if a track is not whole: unwritten,
   invalid, or without an exit. */
int wl_windows(const headers_t *launches, int64_t count, int64_t t, const windows_t *out) {
    for (const headers_t *one = launches; one < launches + count; one++)
        for (int64_t i = 0; i < one->tracks; i++, t++) {
            const uint8_t *track = one->raw + i * one->stride;
            uint64_t start_clock = FIELD(START_CLOCK), exit_clock = FIELD(EXIT_CLOCK);
            uint64_t start_ns = FIELD(START_NS), exit_ns = FIELD(EXIT_NS);
            int64_t block = FIELD(BLOCK), warp = FIELD(WARP), sm = FIELD(SM), lane = FIELD(LANE);
            uint64_t sane = WL_SANE, cycles = exit_clock - start_clock, ns = exit_ns - start_ns;
            int whole = FIELD(MAGIC) == WL_TRACK_MAGIC && FIELD(STATE) == WL_STATE_EXITED && block < one->blocks &&
                        warp < one->warps && warp < WL_MAX_WARPS && sm <= WL_MAX_SM && lane < 32 &&
                        start_clock < sane && start_ns < sane && exit_clock < sane && exit_ns < sane &&
                        exit_clock >= start_clock && exit_ns >= start_ns && !(cycles >> WL_LIFETIME_BITS) &&
                        !(ns >> WL_LIFETIME_BITS) &&
                        (ns < WL_PAUSE_NS || (ns - WL_PAUSE_NS) / WL_SLOWEST_NS <= cycles);
            if (!whole) return 1;
            int64_t written = FIELD(WRITTEN), slots = written < one->capacity ? written : one->capacity;
            int lost = written > slots, wrapped = one->ring && lost;
            out->offset[t] = i * one->stride + WL_HEADER_BYTES, out->written[t] = written;
            out->first[t] = wrapped && one->capacity ? written % one->capacity : 0;
            if (lost && !one->ring && one->capacity > 0) { /* a value that did not fit: see decode/track_windows.py */
                uint64_t last = field_at(track, WL_HEADER_BYTES + (one->capacity - 1) * WL_SLOT_BYTES, 8);
                slots -= !last || ((last >> 32) - start_clock & 0xFFFFFFFFu) > cycles;
            }
            out->slots[t] = slots, out->block[t] = block, out->warp[t] = warp, out->lane[t] = lane, out->sm[t] = sm;
            out->start_clock[t] = start_clock, out->start_ns[t] = start_ns;
            out->exit_clock[t] = exit_clock, out->exit_ns[t] = exit_ns;
            out->exited[t] = 1, out->lossy[t] = lost && !one->ring, out->from_exit[t] = wrapped;
            out->rate[t] = ns ? (double)(int64_t)cycles / (double)(int64_t)ns : one->rate;
        }
    return 0;
}

/* Count the rows and anchors of each track of launches whose bytes are at raw[launch]. Returns 0, or -1 if out of
   memory. */
int wl_count(const uint8_t *const *raw, const int64_t *capacity, const int64_t *launch, const int64_t *offset,
             const int64_t *first, const int64_t *slots, int64_t begin, int64_t end, int64_t *rows, int64_t *anchors,
             uint8_t *holds) {
    uint8_t *is_payload = NULL;
    int64_t allocated = 0;
    for (int64_t t = begin; t < end; t++) {
        window_t w = {raw[launch[t]] + offset[t], capacity[launch[t]], first[t], slots[t]};
        int64_t n = 0, a = 0;
        uint32_t seen = 0;
        for (int64_t i = 0; i < w.slots; i++) {
            uint32_t kind = kind_of(slot_at(&w, i));
            n += gives_row[kind];
            seen |= 1u << kind;
        }
        holds[t] = (seen & PAYLOAD_KINDS ? PAYLOADS : 0) | (seen & ~PLAIN_KINDS || w.first ? NEEDS_WALK : 0);
        if (holds[t] & PAYLOADS) {
            n = 0;
            if (allocated < w.slots) {
                free(is_payload);
                is_payload = malloc(allocated = w.slots);
                if (!is_payload) return -1;
            }
            find_payloads(&w, is_payload);
            for (int64_t i = 0; i < w.slots; i++) {
                if (is_payload[i]) continue;
                uint32_t kind = meaning_of(slot_at(&w, i));
                n += gives_row[kind];
                a += kind == WL_KIND_ANCHOR;
            }
        }
        rows[t] = n;
        anchors[t] = a;
    }
    free(is_payload);
    return 0;
}

/* Maps region ids to codes: small ids with an array, the others with an open-addressed hash table. */
typedef struct {
    const int32_t *keys, *codes, *direct;
    uint32_t direct_size, mask;
    int32_t unknown;
} regions_t;

static inline int32_t code_of(const regions_t *r, uint32_t id, int64_t *unknown) {
    if (id < r->direct_size && r->direct[id] != r->unknown) return r->direct[id];
    for (uint32_t at = (id * 2654435761u) >> 7 & r->mask;; at = (at + 1) & r->mask) {
        if (r->keys[at] == (int32_t)id) return r->codes[at];
        if (r->keys[at] < 0) break;
    }
    ++*unknown;
    return r->unknown;
}

static void add_detail(int64_t *details, int64_t *n, int64_t what, int64_t track, int64_t slot, int64_t id, int64_t other) {
    if (*n >= MAX_DETAILS) return;
    int64_t row[DETAIL_FIELDS] = {what, track, slot, id, other};
    memcpy(details + (*n)++ * DETAIL_FIELDS, row, sizeof row);
}

static double value_of(record_t payload, uint32_t type) {
    uint64_t bits = (uint64_t)payload.clock << 32 | payload.word0;
    double real;
    memcpy(&real, &bits, sizeof real);
    return type == WL_VALUE_F64 ? real : type == WL_VALUE_U64 ? (double)bits : (double)(int64_t)bits;
}

typedef struct {
    int64_t row;
    uint32_t id, tag;
} open_t;

typedef struct {
    const uint8_t *const *raw; /* the bytes of each launch, and the capacity and the table of regions of its tracks */
    const int64_t *capacity, *table, *launch, *offset, *first, *slots, *row_start, *anchor_start;
    const uint8_t *holds, *from_exit;
    const int64_t *start_clock, *exit_clock, *start_ns;
    const uint8_t *exited, *lossy;
    const double *rate;
} tracks_t;

typedef struct {
    int32_t *region, *parent;
    int8_t *kind;
    int16_t *depth;
    int64_t *start, *duration;
    uint8_t *open;
    double *value;
    uint8_t *has_value;
    int64_t *anchor_clock, *anchor_ns;
} rows_t;

static inline int64_t step(uint32_t from, uint32_t to, int64_t *backward) {
    uint32_t delta = to - from;
    if (delta >= BACKWARD) {
        ++*backward;
        return (int32_t)delta;
    }
    return delta;
}

/* The 64-bit clock of the wide record at slot i, or -1 if its payload is missing or invalid. */
static int64_t exact_clock(const window_t *w, const uint8_t *payload, int64_t i, int64_t *counters) {
    if (i && payload[i - 1]) {
        record_t r = slot_at(w, i - 1);
        uint64_t clock = (uint64_t)r.clock << 32 | r.word0;
        if (clock < (uint64_t)1 << WL_CLOCK_BITS) return (int64_t)clock;
    }
    counters[TORN_PAYLOADS]++;
    return -1;
}

/* The clock of the first surviving record of a ring that lost its oldest ones, unwrapped back from its exit. A record
   that would be before the track's start is damaged and says nothing about the ones before it. */
static int64_t clock_of_first(const window_t *w, const uint8_t *is_payload, int64_t start_clock, int64_t exit_clock) {
    int64_t ignored = 0, clock = exit_clock;
    uint32_t low = (uint32_t)exit_clock;
    for (int64_t i = w->slots - 1; i >= 0; i--) {
        record_t r = slot_at(w, i);
        if ((is_payload && is_payload[i]) || kind_of(r) == WL_KIND_EMPTY) continue;
        int64_t before = clock - step(r.clock, low, &ignored);
        if (before < start_clock) continue;
        clock = before;
        low = r.clock;
    }
    return clock;
}

static int64_t find_open(const open_t *stack, int64_t height, uint32_t id, int64_t tag) {
    int64_t bottom = height > SEARCH_LIMIT ? height - SEARCH_LIMIT : 0;
    for (int64_t i = height - 1; i >= bottom; i--)
        if (stack[i].id == id && (tag < 0 || stack[i].tag == (uint32_t)tag)) return i;
    return -1;
}

static void close_row(const rows_t *out, int64_t row, int64_t clock) {
    out->duration[row] = clock > out->start[row] ? clock - out->start[row] : 0;
}

/* End the open spans at the track's last known time: its exit, or its last record if later ones were lost. */
static void finish_track(const tracks_t *tracks, int64_t t, const rows_t *out, const open_t *stack, int64_t height,
                         const open_t *flying, int64_t flights, int64_t clock, int inexact, int64_t *counters) {
    int complete = tracks->exited[t] && !tracks->lossy[t];
    if (complete && inexact && tracks->exit_clock[t] - clock >= (int64_t)1 << WRAP_BITS) counters[CLOCK_AMBIGUOUS]++;
    int64_t last = complete && tracks->exit_clock[t] > clock ? tracks->exit_clock[t] : clock;
    counters[OPEN_SPANS] += height + flights;
    for (int64_t i = 0; i < height + flights; i++) {
        int64_t row = i < height ? stack[i].row : flying[i - height].row;
        out->open[row] = 1;
        close_row(out, row, last);
    }
}

/* The clock of an anchor, with the 32-bit wraps that its globaltimer shows to be missing. Sets *ns to -1 if the
   globaltimer is missing or invalid. */
static int64_t anchor_clock(const tracks_t *tracks, int64_t t, const window_t *w, const uint8_t *payload, int64_t i,
                            int64_t clock, int64_t *ns, int64_t *counters) {
    record_t g = {0, 0};
    if (i && payload[i - 1])
        g = slot_at(w, i - 1);
    else
        counters[TORN_PAYLOADS]++;
    *ns = (int64_t)((uint64_t)g.clock << 32 | g.word0);
    if (*ns <= 0 || *ns < tracks->start_ns[t] || tracks->rate[t] <= 0) {
        *ns = -1;
        return clock;
    }
    double expected = (double)(*ns - tracks->start_ns[t]) * tracks->rate[t];
    double wraps = rint((expected - (double)(clock - tracks->start_clock[t])) / 4294967296.0);
    return wraps > 0 && wraps < 1048576.0 ? clock + ((int64_t)wraps << WRAP_BITS) : clock;
}

static inline int64_t last_possible_clock(const tracks_t *tracks, int64_t t) {
    return tracks->exited[t] ? tracks->exit_clock[t] : tracks->start_clock[t] + ((int64_t)1 << WL_LIFETIME_BITS);
}

static void decode_track(const tracks_t *tracks, int64_t t, const regions_t *regions, const rows_t *out, open_t *stack,
                         open_t *flying, uint8_t *is_payload, int64_t *counters, int64_t *details,
                         int64_t *n_details) {
    int64_t launch = tracks->launch[t];
    window_t w = {tracks->raw[launch] + tracks->offset[t], tracks->capacity[launch], tracks->first[t], tracks->slots[t]};
    int64_t row = tracks->row_start[t], anchor = tracks->anchor_start[t], height = 0, flights = 0;
    const uint8_t *payload = NULL;
    if (tracks->holds[t] & PAYLOADS) {
        find_payloads(&w, is_payload);
        payload = is_payload;
    }
    int64_t start = tracks->start_clock[t], limit = last_possible_clock(tracks, t), clock = start, exact = -1;
    int follows = 0; /* whether the clock is that of a record */
    if (tracks->from_exit[t]) clock = clock_of_first(&w, payload, start, tracks->exit_clock[t]);
    uint32_t low = (uint32_t)clock;

    for (int64_t i = 0; i < w.slots; i++) {
        if (payload && payload[i]) continue;
        record_t r = slot_at(&w, i);
        uint32_t kind = meaning_of(r), id = region_of(r), tag = tag_of(r);
        if (kind == WL_KIND_EMPTY) {
            counters[EMPTY_SLOTS]++;
            continue;
        }
        int64_t own = kind != kind_of(r) ? exact_clock(&w, payload, i, counters) : -1;
        int64_t ns = -1, backward = 0, now = own < 0 ? clock + step(low, r.clock, &backward) : own;
        if (kind == WL_KIND_ANCHOR) now = anchor_clock(tracks, t, &w, payload, i, now, &ns, counters);
        if (now < start || now > limit) { /* the clock stays that of the latest good record */
            counters[DAMAGED_RECORDS]++;
            add_detail(details, n_details, DAMAGED_RECORDS, t, i, id, -1);
            if (kind == WL_KIND_ANCHOR) anchor++;
            if (gives_row[kind]) {
                out->kind[row] = ROW_DAMAGED;
                out->parent[row++] = -1;
            }
            continue;
        }
        counters[CLOCK_BACKWARD] += own < 0 ? backward : follows && own < clock;
        clock = now;
        exact = own;
        low = r.clock;
        follows = 1;
        switch (kind) {
        case WL_KIND_BEGIN:
        case WL_KIND_INSTANT:
        case WL_KIND_VALUE:
        case WL_KIND_ASYNC_BEGIN:
            out->region[row] = code_of(regions, id, counters + UNKNOWN_REGIONS);
            if (kind != WL_KIND_BEGIN)
                out->kind[row] = kind == WL_KIND_INSTANT ? ROW_INSTANT : kind == WL_KIND_VALUE ? ROW_VALUE : 0;
            out->depth[row] = height > INT16_MAX ? INT16_MAX : (int16_t)height;
            out->parent[row] = height ? (int32_t)stack[height - 1].row : -1;
            out->start[row] = clock;
            out->duration[row] = 0;
            if (kind == WL_KIND_BEGIN) stack[height++] = (open_t){row, id, tag};
            if (kind == WL_KIND_ASYNC_BEGIN) flying[flights++] = (open_t){row, id, tag};
            if (kind == WL_KIND_VALUE) {
                if (i && payload[i - 1]) {
                    out->value[row] = value_of(slot_at(&w, i - 1), tag);
                    out->has_value[row] = tag == WL_VALUE_BARRIER ? 2 : 1;
                } else
                    counters[TORN_PAYLOADS]++;
            }
            row++;
            break;
        case WL_KIND_END: {
            int64_t at = height && stack[height - 1].id == id ? height - 1 : find_open(stack, height, id, -1);
            if (at < 0) {
                counters[ORPHAN_ENDS]++;
                add_detail(details, n_details, ORPHAN_ENDS, t, i, id, -1);
                break;
            }
            if (at != height - 1) {
                counters[MISMATCHED_ENDS]++;
                add_detail(details, n_details, MISMATCHED_ENDS, t, i, id, stack[height - 1].id);
            }
            close_row(out, stack[at].row, clock);
            height--;
            memmove(stack + at, stack + at + 1, (height - at) * sizeof *stack);
            break;
        }
        case WL_KIND_ASYNC_END: {
            int64_t at = find_open(flying, flights, id, tag);
            if (at < 0) {
                counters[ORPHAN_ENDS]++;
                add_detail(details, n_details, ORPHAN_ENDS, t, i, id, -1);
                break;
            }
            close_row(out, flying[at].row, clock);
            flights--;
            memmove(flying + at, flying + at + 1, (flights - at) * sizeof *flying);
            break;
        }
        case WL_KIND_ANCHOR:
            out->anchor_clock[anchor] = ns < 0 ? 0 : clock;
            out->anchor_ns[anchor++] = ns;
            break;
        }
    }
    finish_track(tracks, t, out, stack, height, flying, flights, clock, exact < 0, counters);
}

/* The fast path for tracks of only begins, ends and instants that start at slot 0, which is nearly all of them.
   Returns 1 at the first damaged record or end that does not close the innermost span; decode_track must then decode
   the track. */
static int decode_plain(const tracks_t *tracks, int64_t t, const regions_t *regions, const rows_t *out, open_t *stack,
                        int64_t *counters) {
    const uint8_t *slot = tracks->raw[tracks->launch[t]] + tracks->offset[t];
    int64_t row = tracks->row_start[t], clock = tracks->start_clock[t], height = 0, backward = 0, unknown = 0;
    int64_t start = clock, limit = last_possible_clock(tracks, t);
    uint32_t low = (uint32_t)clock;
    for (int64_t i = 0; i < tracks->slots[t]; i++) {
        record_t r;
        memcpy(&r, slot + i * WL_SLOT_BYTES, sizeof r);
        uint32_t kind = kind_of(r), id = region_of(r), delta = r.clock - low;
        clock += delta >= BACKWARD ? (int64_t)(int32_t)delta : (int64_t)delta;
        if (clock < start || clock > limit) return 1;
        backward += delta >= BACKWARD;
        low = r.clock;
        if (kind == WL_KIND_END) {
            if (!height || stack[height - 1].id != id) return 1;
            close_row(out, stack[--height].row, clock);
            continue;
        }
        out->region[row] = code_of(regions, id, &unknown);
        out->depth[row] = height > INT16_MAX ? INT16_MAX : (int16_t)height;
        out->parent[row] = height ? (int32_t)stack[height - 1].row : -1;
        out->start[row] = clock;
        if (kind == WL_KIND_BEGIN)
            stack[height++] = (open_t){row, id, 0};
        else {
            out->kind[row] = ROW_INSTANT;
            out->duration[row] = 0;
        }
        row++;
    }
    counters[CLOCK_BACKWARD] += backward;
    counters[UNKNOWN_REGIONS] += unknown;
    finish_track(tracks, t, out, stack, height, NULL, 0, clock, 1, counters);
    return 0;
}

/* Fill the rows of tracks [begin, end). Returns 0, or -1 if out of memory. */
int wl_decode(const tracks_t *tracks, int64_t begin, int64_t end, const regions_t *tables, const rows_t *out,
              int64_t *counters, int64_t *details, int64_t *n_details) {
    int64_t most = 1;
    for (int64_t t = begin; t < end; t++)
        if (tracks->slots[t] > most) most = tracks->slots[t];
    open_t *stack = malloc(most * sizeof *stack), *flying = malloc(most * sizeof *flying);
    uint8_t *is_payload = malloc(most);
    int failed = !stack || !flying || !is_payload;
    for (int64_t t = begin; t < end && !failed; t++) {
        const regions_t *regions = tables + tracks->table[tracks->launch[t]];
        if (tracks->holds[t] & NEEDS_WALK || tracks->from_exit[t] ||
            decode_plain(tracks, t, regions, out, stack, counters))
            decode_track(tracks, t, regions, out, stack, flying, is_payload, counters, details, n_details);
    }
    free(stack);
    free(flying);
    free(is_payload);
    return failed ? -1 : 0;
}

static inline int64_t within(int64_t value, int64_t most) { return value < 0 ? 0 : value > most ? most : value; }

/* The cycles of each track that are inside at least one outermost span; asynchronous spans may overlap. */
void wl_inside(const int64_t *row_start, int64_t begin, int64_t end, const int32_t *parent, const int8_t *kind,
               int64_t span, const int64_t *start, const int64_t *duration, const int64_t *start_clock,
               const int64_t *lived, int64_t *inside) {
    for (int64_t t = begin; t < end; t++) {
        int64_t sum = 0, before = 0;
        for (int64_t i = row_start[t]; i < row_start[t + 1]; i++) {
            if (parent[i] >= 0 || kind[i] != span) continue;
            int64_t from = within(start[i] - start_clock[t], lived[t]), to = within(from + duration[i], lived[t]);
            if (to > before) {
                sum += to - (from > before ? from : before);
                before = to;
            }
        }
        inside[t] = sum;
    }
}

/* floor() without calling libm. */
static inline int64_t whole_ns(double ns) {
    int64_t whole = (int64_t)ns;
    return whole - (ns < (double)whole);
}

/* The segment of a line, of which the last is number `last`, that a clock lies in. */
static inline int64_t segment_of(const int64_t *clocks, int64_t last, int64_t clock) {
    int64_t s = 0;
    while (s < last) {
        int64_t middle = (s + last + 1) / 2;
        if (clocks[middle] <= clock)
            s = middle;
        else
            last = middle - 1;
    }
    return s;
}

/* The time of a clock in ns on a line whose `count` segments begin at `from`. */
static inline double time_of(int64_t clock, int64_t from, int64_t count, const int64_t *knot_clock,
                             const double *knot_ns, const double *slope) {
    int64_t s = from + segment_of(knot_clock + from, count - 1, clock);
    return knot_ns[s] + (double)(clock - knot_clock[s]) * slope[s];
}

/* Convert one clock of each unit to ns: that of unit at[i], whose line segments begin at first[at[i]]. */
void wl_times(const int64_t *at, int64_t begin, int64_t end, const int64_t *first, const int64_t *count,
              const int64_t *knot_clock, const double *knot_ns, const double *slope, const int64_t *clock, double *out) {
    for (int64_t i = begin; i < end; i++)
        out[i] = time_of(clock[i], first[at[i]], count[at[i]], knot_clock, knot_ns, slope);
}

/* The least time of the first row of each track, infinite without a row. */
double wl_earliest(const int64_t *row_start, int64_t begin, int64_t end, const int64_t *at, const int64_t *first,
                   const int64_t *count, const int64_t *knot_clock, const double *knot_ns, const double *slope,
                   const int64_t *start) {
    double least = INFINITY;
    for (int64_t t = begin; t < end; t++) {
        if (row_start[t] == row_start[t + 1]) continue;
        double ns = time_of(start[row_start[t]], first[at[t]], count[at[t]], knot_clock, knot_ns, slope);
        if (ns < least) least = ns;
    }
    return least;
}

/* Convert cycles to whole ns with the segments of each track's line: ns = knot_ns + (cycle - knot_clock) * slope. */
void wl_place(const int64_t *row_start, int64_t begin, int64_t end, const int64_t *at, const int64_t *first,
              const int64_t *count, const int64_t *knot_clock, const double *knot_ns, const double *slope,
              const int64_t *start, const int64_t *duration, int64_t *start_ns, int64_t *duration_ns) {
    for (int64_t t = begin; t < end; t++) {
        const int64_t *clocks = knot_clock + first[at[t]];
        const double *ns = knot_ns + first[at[t]], *slopes = slope + first[at[t]];
        int64_t last = count[at[t]] - 1;
        if (!last) {
            for (int64_t i = row_start[t]; i < row_start[t + 1]; i++) {
                int64_t from = whole_ns(ns[0] + (double)(start[i] - clocks[0]) * slopes[0] + 0.5);
                int64_t to = whole_ns(ns[0] + (double)(start[i] + duration[i] - clocks[0]) * slopes[0] + 0.5);
                start_ns[i] = from;
                duration_ns[i] = to - from;
            }
            continue;
        }
        for (int64_t i = row_start[t]; i < row_start[t + 1]; i++) {
            int64_t edges[2] = {start[i], start[i] + duration[i]}, placed[2];
            for (int e = 0; e < 2; e++) {
                int64_t s = segment_of(clocks, last, edges[e]);
                placed[e] = whole_ns(ns[s] + (double)(edges[e] - clocks[s]) * slopes[s] + 0.5);
            }
            start_ns[i] = placed[0];
            duration_ns[i] = placed[1] - placed[0];
        }
    }
}
