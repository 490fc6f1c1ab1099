/* SPDX-License-Identifier: Apache-2.0 */
/* Options of KV cache eviction. */
#ifndef ANTIGRAVITY_EVICTION_OPTIONS_H
#define ANTIGRAVITY_EVICTION_OPTIONS_H

#include "options.h"

#include <antigravity/eviction.h>

typedef struct eviction_options {
    ag_eviction_params params;
    uint32_t threshold_mb; /* evict below this much available memory; 0: memory is not watched */
    double target_ratio;
    ag_spill_params spill; /* path NULL: no spilling */
    uint32_t spill_mib;    /* maximum size; 0: no limit */
    bool watch;            /* --memory-threshold-mb was given */
} eviction_options;

eviction_options eviction_options_defaults(void);
option_group eviction_choice_group(eviction_options *o); /* policy and budget */
option_group eviction_rules_group(eviction_options *o);  /* parameters of the policies */
option_group eviction_memory_group(eviction_options *o); /* eviction under memory pressure */

/* Parse "keydiff"; "512", "25%" or "64MiB"; "adaptive". On false the reason is in
 * message[MESSAGE_SIZE]. */
bool eviction_parse_policy(ag_eviction_params *p, const char *value, char *message);
bool eviction_parse_budget(ag_eviction_params *p, const char *value, char *message);
bool eviction_parse_heads(ag_eviction_params *p, const char *value, char *message);
/* Returns whether the policy supports the parameters' head budget. On false the reason is in
 * message[MESSAGE_SIZE]. */
bool eviction_suits_heads(const ag_eviction_params *p, const ag_eviction_policy *policy,
                          char *message);

/* Checks the parsed options together and completes the parameters. Reports an option without its
 * policy and returns an exit code. */
int eviction_options_check(eviction_options *o);

/* Returns the parameters; they point into the options. */
ag_eviction_params eviction_params(const eviction_options *o);

/* Returns the policy's name, or "none". */
const char *eviction_policy_name(const eviction_options *o);

/* Prints one line about an eviction to standard error. For ag_eviction_params.on_eviction. */
void eviction_report(void *user, const ag_eviction *e);

#endif
