/* Formats spans and instants as events of Chrome's JSON. export/chrome.py gives the same bytes with Arrow. */
#include <stdint.h>
#include <string.h>

enum { SPAN };

/* Texts one after the other: text i is bytes at[i] .. at[i + 1]. */
typedef struct {
    const char *bytes;
    const int64_t *at;
} texts_t;

typedef struct {
    const int8_t *kind;
    const int32_t *region;
    const int64_t *start, *duration, *cycles;
} columns_t;

static const char PAIRS[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748"
                            "49505152535455565758596061626364656667686970717273747576777879808182838485868788899091929394959697"
                            "9899";

static inline char *put(char *out, const char *bytes, int64_t size) {
    memcpy(out, bytes, (size_t)size);
    return out + size;
}

static inline char *text(char *out, const texts_t *texts, int64_t i) {
    return put(out, texts->bytes + texts->at[i], texts->at[i + 1] - texts->at[i]);
}

static inline char *number(char *out, int64_t given) {
    char digits[20], *at = digits + sizeof digits;
    uint64_t value = (uint64_t)given;
    if (given < 0) {
        *out++ = '-';
        value = -value;
    }
    for (; value >= 100; value /= 100) memcpy(at -= 2, PAIRS + 2 * (value % 100), 2);
    if (value >= 10)
        memcpy(at -= 2, PAIRS + 2 * value, 2);
    else
        *--at = (char)('0' + value);
    return put(out, at, digits + sizeof digits - at);
}

/* Nanoseconds, which are not negative, as microseconds with three decimals. */
static inline char *micros(char *out, int64_t ns) {
    out = number(out, ns / 1000);
    unsigned decimals = (unsigned)(ns % 1000);
    *out++ = '.';
    *out++ = (char)('0' + decimals / 100);
    memcpy(out, PAIRS + 2 * (decimals % 100), 2);
    return out + 2;
}

#define PUT(out, literal) put(out, literal, sizeof(literal) - 1)

/* The events of all rows of one kind of `tracks` tracks, whose rows are row_start[t] .. row_start[t + 1]. `names` begin
   the events of each region, `heads` say where each lane is, and `tails` end the events of each track. Lane 0 of track t
   is heads[first_head[t]]. Returns the number of bytes; the caller knows that they fit. */
int64_t wl_chrome_events(const columns_t *rows, const int64_t *row_start, int64_t tracks, int kind, const int32_t *lane_of,
                         const int64_t *first_head, const texts_t *names, const texts_t *heads, const texts_t *tails,
                         char *out) {
    const char *begin = out;
    for (int64_t t = 0; t < tracks; t++)
        for (int64_t row = row_start[t]; row < row_start[t + 1]; row++) {
            if (rows->kind[row] != kind) continue;
            int64_t start = rows->start[row], duration = rows->duration[row];
            out = text(out, names, rows->region[row]);
            out = text(out, heads, first_head[t] + lane_of[row - row_start[0]]);
            out = micros(out, start);
            if (kind == SPAN) {
                out = PUT(out, ",\"dur\":");
                out = micros(out, duration);
            }
            out = PUT(out, ",\"args\":{\"ns\":");
            out = number(out, start);
            if (kind == SPAN) {
                out = PUT(out, ",\"dur_ns\":");
                out = number(out, duration);
                out = PUT(out, ",\"cycles\":");
                out = number(out, rows->cycles[row]);
            }
            out = text(out, tails, t);
        }
    return out - begin;
}
