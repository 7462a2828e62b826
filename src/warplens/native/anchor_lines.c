/* The passes over all anchors that fit one line per unit: decode/clock/anchor_fit.py has them with numpy. Sums are added
   up in the order of the anchors, as numpy does, so that both give the same bits. */
#include <math.h>
#include <stdint.h>

typedef struct {
    int64_t count;
    const int64_t *member; /* the unit of each anchor */
    const double *x, *y;
    double *weight, *residual;
} anchors_t;

/* For each unit, the sums of weights, of x and of y; they are 0 before. */
void wl_line_sums(const anchors_t *all, double *total, double *sum_x, double *sum_y) {
    for (int64_t i = 0; i < all->count; i++) {
        int64_t unit = all->member[i];
        double weight = all->weight[i];
        total[unit] += weight;
        sum_x[unit] += weight * all->x[i];
        sum_y[unit] += weight * all->y[i];
    }
}

/* The second moments about the means, and whether the timer moved within a unit. */
void wl_line_moments(const anchors_t *all, const double *mean_x, const double *mean_y, double *sxx, double *sxy,
                     uint8_t *moved) {
    for (int64_t i = 0; i < all->count; i++) {
        int64_t unit = all->member[i];
        double dx = all->x[i] - mean_x[unit], dy = all->y[i] - mean_y[unit], weighted = all->weight[i] * dx;
        sxx[unit] += weighted * dx;
        sxy[unit] += weighted * dy;
        moved[unit] |= fabs(dy) > 0.5;
    }
}

/* How far each anchor lies from its unit's line, and the weight that this gives it: 1 up to `near`. */
void wl_line_residuals(const anchors_t *all, const double *offset, const double *slope, double near) {
    for (int64_t i = 0; i < all->count; i++) {
        int64_t unit = all->member[i];
        double residual = all->y[i] - (offset[unit] + slope[unit] * all->x[i]), far = fabs(residual);
        double weight = near / (far <= 1e-9 ? 1e-9 : far);
        if (weight >= 1.0) weight = 1.0;
        all->residual[i] = residual;
        all->weight[i] = weight * weight;
    }
}
