/* SPDX-License-Identifier: Apache-2.0 */
#include "energy.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static bool read_number(const char *dir, size_t package, const char *file, uint64_t *value) {
    char path[512];
    const int n = snprintf(path, sizeof path, "%s/intel-rapl:%zu/%s", dir, package, file);
    FILE *f = n > 0 && (size_t)n < sizeof path ? fopen(path, "r") : NULL;
    if (!f) return false;
    const bool ok = fscanf(f, "%" SCNu64, value) == 1;
    fclose(f);
    return ok;
}

energy_reading energy_read(void) {
    const char *dir = getenv("AG_POWERCAP_DIR");
    energy_reading r = {0};
    if (!dir) dir = "/sys/class/powercap";
    for (; r.n < ENERGY_PACKAGES; r.n++) {
        if (!read_number(dir, r.n, "energy_uj", &r.counter[r.n])) break;
        if (!read_number(dir, r.n, "max_energy_range_uj", &r.range[r.n])) break;
    }
    return r;
}

double energy_between(const energy_reading *from, const energy_reading *to) {
    double microjoules = 0;
    if (!from->n || from->n != to->n) return -1;
    for (size_t i = 0; i < from->n; i++) {
        microjoules += (double)to->counter[i] - (double)from->counter[i];
        if (to->counter[i] < from->counter[i]) microjoules += (double)to->range[i];
    }
    return microjoules / 1e6;
}
