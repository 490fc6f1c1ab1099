/* SPDX-License-Identifier: Apache-2.0 */
#include "energy.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads the first word of a file of a domain. */
static bool read_word(const char *dir, size_t domain, const char *file, char word[32]) {
    char path[512];
    const int n = snprintf(path, sizeof path, "%s/intel-rapl:%zu/%s", dir, domain, file);
    FILE *f = n > 0 && (size_t)n < sizeof path ? fopen(path, "r") : NULL;
    if (!f) return false;
    const bool ok = fscanf(f, "%31s", word) == 1;
    fclose(f);
    return ok;
}

static bool read_number(const char *dir, size_t domain, const char *file, uint64_t *value) {
    char word[32];
    return read_word(dir, domain, file, word) && sscanf(word, "%" SCNu64, value) == 1;
}

/* Domains are packages, "package-0", and on laptops the platform, "psys", which includes them. */
energy_reading energy_read(void) {
    const char *dir = getenv("AG_POWERCAP_DIR");
    energy_reading r = {0};
    char name[32];
    if (!dir) dir = "/sys/class/powercap";
    for (size_t i = 0; r.n < ENERGY_PACKAGES && read_word(dir, i, "name", name); i++) {
        if (strncmp(name, "package-", 8) != 0) continue;
        if (!read_number(dir, i, "energy_uj", &r.counter[r.n])) return (energy_reading){0};
        if (!read_number(dir, i, "max_energy_range_uj", &r.range[r.n])) return (energy_reading){0};
        r.n++;
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
