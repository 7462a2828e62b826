/* Which blocks of launches a small trace keeps: what launch/block_sampler.py computes with numpy, launch by launch. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const double GOLDEN = 0.6180339887498949, PLASTIC = 0.7548776662466927;
enum { UNFINISHED = 8, LIFE_SLOTS = 2, MOST_FRAMED = 4 + UNFINISHED };

/* One launch, with a column for each thing that is known of its blocks. */
typedef struct {
    const uint8_t *raw;
    int64_t stride, tracks, capacity, most, counts_lives; /* `most` blocks have room in the columns */
    int64_t *number, *sm, *begin, *end, *slots, *order;
    uint8_t *unfinished;
    /* Found: blocks, or -1 where numpy has to do it; slots in a trace and as written; what did not fit; SMs. */
    int64_t blocks, taken, written, lost, sms;
} ranked_t;

/* What is kept of a launch that was ranked: at most `room` slots, or one block. */
typedef struct {
    const ranked_t *launch;
    double room;
    uint8_t *kept, *target;                    /* by block, whether it is; and where its tracks go */
    int64_t keep, rows, records, with_records; /* found: blocks, tracks, their slots, and blocks that have some */
} choice_t;

typedef struct {
    int64_t key, at;
} keyed_t;

/* Memory to rank a launch in: for its blocks and for its SMs. */
typedef struct {
    keyed_t *sorted, *spare, *turns;
    int64_t *members, *count, *next, *first, *size, *group;
    uint8_t *framed, *has_framed;
} desk_t;

static inline uint64_t field_at(const uint8_t *track, int at, int size) {
    uint64_t value = 0;
    memcpy(&value, track + at, size);
    return value;
}
#define FIELD(name) field_at(track, WL_HEADER_##name, WL_HEADER_SIZE_##name)

/* A stable sort by key: short runs by insertion, then merged. */
static void sort_keyed(keyed_t *all, keyed_t *spare, int64_t n) {
    enum { RUN = 8 };
    for (int64_t begin = 0; begin < n; begin += RUN)
        for (int64_t i = begin + 1; i < begin + RUN && i < n; i++) {
            keyed_t one = all[i];
            int64_t j = i;
            for (; j > begin && all[j - 1].key > one.key; j--) all[j] = all[j - 1];
            all[j] = one;
        }
    keyed_t *from = all, *to = spare;
    for (int64_t width = RUN; width < n; width *= 2) {
        for (int64_t begin = 0; begin < n; begin += 2 * width) {
            int64_t middle = begin + width < n ? begin + width : n, end = middle + width < n ? middle + width : n;
            if (middle == end || from[middle - 1].key <= from[middle].key) { /* nothing to merge */
                memcpy(to + begin, from + begin, (end - begin) * sizeof *to);
                continue;
            }
            int64_t left = begin, right = middle;
            for (int64_t k = begin; k < end; k++) {
                int from_left = right == end || (left < middle && from[left].key <= from[right].key);
                to[k] = from[from_left ? left++ : right++];
            }
        }
        keyed_t *sorted = to;
        to = from, from = sorted;
    }
    if (from != all) memcpy(all, from, n * sizeof *all);
}

/* `more` and the fraction of a number, none of which is negative: such doubles are in the order of their bits. */
static int64_t fraction(double value, double more) {
    int64_t bits;
    value = (value - floor(value)) + more;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Read the headers of a launch. Returns 0 where numpy has to: no block began, they are out of order or too many, or one
   has an impossible SM. */
static int read_blocks(ranked_t *one) {
    int64_t n = 0, zero = INT64_MAX, last = -1;
    const uint8_t *track = one->raw;
    for (int64_t t = 0; t < one->tracks; t++, track += one->stride) {
        if (FIELD(MAGIC) != WL_TRACK_MAGIC) continue;
        int64_t block = FIELD(BLOCK), written = FIELD(WRITTEN), start = FIELD(START_NS), end = FIELD(EXIT_NS);
        int exited = FIELD(STATE) != 0;
        int64_t slots = exited && written < one->capacity ? written : one->capacity;
        int64_t taken = one->counts_lives && exited && !written ? LIFE_SLOTS : slots;
        if (!exited || end < start) end = start;
        if (exited && written > one->capacity) one->lost += written - one->capacity;
        one->written += slots, one->taken += taken;
        if (start < zero) zero = start;
        if (block == last) {
            if (start < one->begin[n - 1]) one->begin[n - 1] = start;
            if (end > one->end[n - 1]) one->end[n - 1] = end;
            one->slots[n - 1] += taken, one->unfinished[n - 1] |= !exited;
            continue;
        }
        int64_t sm = FIELD(SM);
        if (block < last || n == one->most || sm > WL_MAX_SM) return 0;
        one->number[n] = last = block, one->sm[n] = sm, one->begin[n] = start, one->end[n] = end;
        one->slots[n] = taken, one->unfinished[n++] = !exited;
    }
    for (int64_t i = 0; i < n; i++) one->begin[i] -= zero, one->end[i] -= zero;
    one->blocks = n;
    return n > 0;
}

/* The blocks that frame a launch, and a few that never ended, each once; returns how many. */
static int64_t find_frame(const ranked_t *one, const int64_t *by_start, int64_t *frame) {
    int64_t n = one->blocks, last = 0, found = 0, many = 4;
    for (int64_t i = 1; i < n; i++)
        if (one->end[i] >= one->end[last]) last = i;
    int64_t wanted[MOST_FRAMED] = {last, by_start[0], by_start[n - 1], by_start[n / 2]};
    for (int64_t i = 0; i < n && many < MOST_FRAMED; i++)
        if (one->unfinished[i]) wanted[many++] = i;
    for (int64_t i = 0; i < many; i++) {
        int64_t seen = 0;
        while (seen < found && frame[seen] != wanted[i]) seen++;
        if (seen == found) frame[found++] = wanted[i];
    }
    return found;
}

/* The order in which the blocks of a launch are kept. */
static void rank(ranked_t *one, const desk_t *desk) {
    int64_t n = one->blocks, top = 0, groups = 0, frame[MOST_FRAMED];
    for (int64_t i = 0; i < n; i++) {
        desk->sorted[i] = (keyed_t){one->begin[i], i};
        if (one->sm[i] > top) top = one->sm[i];
    }
    sort_keyed(desk->sorted, desk->spare, n);
    int64_t *by_start = one->order;
    for (int64_t i = 0; i < n; i++) by_start[i] = desk->sorted[i].at;
    int64_t framed = find_frame(one, by_start, frame);
    memset(desk->framed, 0, n);
    memset(desk->has_framed, 0, top + 1);
    memset(desk->count, 0, (top + 1) * sizeof *desk->count);
    for (int64_t i = 0; i < framed; i++) desk->framed[frame[i]] = desk->has_framed[one->sm[frame[i]]] = 1;
    for (int64_t i = 0; i < n; i++) desk->count[one->sm[i]] += !desk->framed[i];

    /* The other blocks by SM, and those of each in the order of their starts. */
    for (int64_t sm = 0, at = 0; sm <= top; at += desk->count[sm++]) {
        one->sms += desk->count[sm] || desk->has_framed[sm];
        desk->next[sm] = at;
        if (!desk->count[sm]) continue;
        desk->first[groups] = at, desk->size[groups] = desk->count[sm];
        desk->turns[groups] = (keyed_t){fraction((double)groups * GOLDEN, desk->has_framed[sm]), groups};
        groups++;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t block = by_start[i];
        if (!desk->framed[block]) desk->members[desk->next[one->sm[block]]++] = block;
    }

    /* In which round each of them is kept: the place of its key among those of its SM. */
    sort_keyed(desk->turns, desk->spare, groups);
    for (int64_t turn = 0; turn < groups; turn++) {
        int64_t group = desk->group[turn] = desk->turns[turn].at, size = desk->size[group];
        int64_t *members = desk->members + desk->first[group];
        if (size == 1) continue;
        for (int64_t i = 0; i < size; i++)
            desk->sorted[i] = (keyed_t){fraction((double)i * GOLDEN + (double)turn * PLASTIC, 0), members[i]};
        sort_keyed(desk->sorted, desk->spare, size);
        for (int64_t i = 0; i < size; i++) members[i] = desk->sorted[i].at;
    }
    memcpy(one->order, frame, framed * sizeof *frame);
    for (int64_t round = 0, at = framed; groups; round++) {
        int64_t left = 0;
        for (int64_t turn = 0; turn < groups; turn++) {
            int64_t group = desk->group[turn];
            one->order[at++] = desk->members[desk->first[group] + round];
            if (round + 1 < desk->size[group]) desk->group[left++] = group;
        }
        groups = left;
    }
}

/* Rank the blocks of some launches. Returns 1 if there is no memory. */
int wl_rank_blocks(ranked_t *launches, int64_t count) {
    int64_t most = WL_MAX_SM + 1, size = 0;
    for (int64_t i = 0; i < count; i++)
        if (launches[i].most > most) most = launches[i].most;
    size = most * (3 * sizeof(keyed_t) + 6 * sizeof(int64_t) + 2);
    keyed_t *keyed = malloc(size);
    if (!keyed) return 1;
    int64_t *numbers = (int64_t *)(keyed + 3 * most);
    uint8_t *flags = (uint8_t *)(numbers + 6 * most);
    desk_t desk = {keyed, keyed + most, keyed + 2 * most, numbers, numbers + most, numbers + 2 * most,
                   numbers + 3 * most, numbers + 4 * most, numbers + 5 * most, flags, flags + most};
    for (ranked_t *one = launches; one < launches + count; one++) {
        if (read_blocks(one))
            rank(one, &desk);
        else
            one->blocks = -1;
    }
    free(keyed);
    return 0;
}

/* Where and when the blocks of a launch lived, as planes of bytes: see pack_lives in record/block_lives.py. */
void wl_life_planes(const ranked_t *one, uint8_t *planes) {
    int64_t n = one->blocks, number = 0, begin = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t values[4] = {one->number[i] - number, one->sm[i], one->begin[i] - begin, one->end[i] - one->begin[i]};
        number = one->number[i], begin = one->begin[i];
        for (int column = 0; column < 4; column++) {
            uint64_t coded = (uint64_t)(values[column] << 1) ^ (uint64_t)(values[column] >> 63);
            for (int byte = 0; byte < 8; byte++) planes[(column * 8 + byte) * n + i] = (uint8_t)(coded >> 8 * byte);
        }
    }
}

/* Choose the blocks of launches that are kept, and count what they have. */
void wl_choose_blocks(choice_t *choices, int64_t count) {
    for (choice_t *one = choices; one < choices + count; one++) {
        const ranked_t *launch = one->launch;
        int64_t total = 0;
        memset(one->kept, 0, launch->blocks);
        while (one->keep < launch->blocks) {
            int64_t block = launch->order[one->keep];
            total += launch->slots[block];
            if ((double)total > one->room && one->keep) break;
            one->keep++;
            one->kept[block] = 1;
            one->with_records += launch->slots[block] > 0;
        }
        const uint8_t *track = launch->raw;
        int64_t at = 0;
        for (int64_t t = 0; t < launch->tracks; t++, track += launch->stride) {
            if (FIELD(MAGIC) != WL_TRACK_MAGIC) {
                one->rows++;
                continue;
            }
            int64_t block = FIELD(BLOCK), written = FIELD(WRITTEN);
            while (launch->number[at] != block) at++;
            if (!one->kept[at]) continue;
            one->rows++;
            one->records += FIELD(STATE) && written < launch->capacity ? written : launch->capacity;
        }
    }
}

/* Copy the tracks of the blocks that are kept, and those that nobody wrote to. */
void wl_keep_blocks(const choice_t *choices, int64_t count) {
    for (const choice_t *one = choices; one < choices + count; one++) {
        const ranked_t *launch = one->launch;
        const uint8_t *track = launch->raw;
        uint8_t *target = one->target;
        int64_t at = 0;
        for (int64_t t = 0; t < launch->tracks; t++, track += launch->stride) {
            if (FIELD(MAGIC) == WL_TRACK_MAGIC) {
                int64_t block = FIELD(BLOCK);
                while (launch->number[at] != block) at++;
                if (!one->kept[at]) continue;
            }
            memcpy(target, track, launch->stride);
            target += launch->stride;
        }
    }
}
