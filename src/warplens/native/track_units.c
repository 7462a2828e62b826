/* Passes over all tracks that know their launch and their SM, which together are a unit of the clock fit:
   decode/clock/track_units.py has them with numpy. The tracks of launch i are bounds[i] to bounds[i + 1]. */
#include <stdint.h>

/* Set there[launch * sms + sm] of each track; all are 0 before. */
void wl_units_there(const int64_t *bounds, int64_t launches, const int64_t *sm, int64_t sms, uint8_t *there) {
    for (int64_t launch = 0; launch < launches; launch++, there += sms)
        for (int64_t t = bounds[launch]; t < bounds[launch + 1]; t++) there[sm[t]] = 1;
}

/* For each track, what `of` has for its unit. */
void wl_units_look_up(const int64_t *bounds, int64_t launches, const int64_t *sm, int64_t sms, const int32_t *of,
                      int64_t *out) {
    for (int64_t launch = 0; launch < launches; launch++, of += sms)
        for (int64_t t = bounds[launch]; t < bounds[launch + 1]; t++) out[t] = of[sm[t]];
}

/* The tracks whose number, multiplied by `spread`, is below the limit of their launch. Returns how many there are. */
int64_t wl_spread_tracks(const int64_t *bounds, int64_t launches, uint32_t spread, const uint32_t *limit, int64_t *out) {
    int64_t found = 0;
    for (int64_t launch = 0; launch < launches; launch++)
        for (int64_t t = bounds[launch]; t < bounds[launch + 1]; t++) {
            out[found] = t;
            found += (uint32_t)t * spread < limit[launch];
        }
    return found;
}
