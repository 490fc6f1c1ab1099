/* SPDX-License-Identifier: Apache-2.0 */
#include "score.h"

#include "../../support/statistics.h"
#include "../seeded.h"

#include <math.h>
#include <string.h>
#include <strings.h>

enum { N_RESAMPLES = 2000 };

static int contains(const char *text, const char *word) {
    const size_t n = strlen(word);
    for (; *text; text++)
        if (!strncasecmp(text, word, n)) return 1;
    return 0;
}

double ruler_score(const char *answer, const char *const references[], size_t n) {
    size_t found = 0;
    for (size_t i = 0; i < n; i++) found += (size_t)contains(answer, references[i]);
    return n ? (double)found / (double)n : 0;
}

/* Computes the means of the sample that `random` draws; NULL: of all prompts. */
static void measure(const double *full, const double *reduced, size_t n, seeded *random,
                    double *difference, double *ratio) {
    double sum_full = 0, sum_reduced = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t at = random ? seeded_below(random, n) : i;
        sum_full += full[at];
        sum_reduced += reduced[at];
    }
    *difference = (sum_reduced - sum_full) / (double)n;
    *ratio = sum_full > 0 ? sum_reduced / sum_full : random ? 1 : (double)NAN;
}

paired_scores ruler_compare(const double *full, const double *reduced, size_t n) {
    double differences[N_RESAMPLES], ratios[N_RESAMPLES];
    seeded random = {1};
    paired_scores p;
    measure(full, reduced, n, NULL, &p.difference.mean, &p.ratio.mean);
    for (size_t i = 0; i < N_RESAMPLES; i++)
        measure(full, reduced, n, &random, &differences[i], &ratios[i]);
    sort_ascending(differences, N_RESAMPLES);
    sort_ascending(ratios, N_RESAMPLES);
    p.difference.low = percentile(differences, N_RESAMPLES, 0.025);
    p.difference.high = percentile(differences, N_RESAMPLES, 0.975);
    p.ratio.low = isnan(p.ratio.mean) ? p.ratio.mean : percentile(ratios, N_RESAMPLES, 0.025);
    p.ratio.high = isnan(p.ratio.mean) ? p.ratio.mean : percentile(ratios, N_RESAMPLES, 0.975);
    return p;
}
