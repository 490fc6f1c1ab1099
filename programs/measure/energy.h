/* SPDX-License-Identifier: Apache-2.0 */
/* Energy that the processor packages use, by the RAPL counters of Intel and AMD. Linux shows them
 * as files, to root alone on most systems. */
#ifndef MEASURE_ENERGY_H
#define MEASURE_ENERGY_H

#include <stddef.h>
#include <stdint.h>

enum { ENERGY_PACKAGES = 8 };

typedef struct energy_reading {
    size_t n;                                                  /* packages; 0: cannot be read */
    uint64_t counter[ENERGY_PACKAGES], range[ENERGY_PACKAGES]; /* microjoules */
} energy_reading;

/* Reads the counters in /sys/class/powercap, or in the directory that AG_POWERCAP_DIR names. */
energy_reading energy_read(void);
/* Returns the joules between two readings, less than a turn of the counters (minutes) apart; below
 * 0 if they have no packages in common. */
double energy_between(const energy_reading *from, const energy_reading *to);

#endif
