/* SPDX-License-Identifier: Apache-2.0 */
/* What happens when the KV cache is full. */
#ifndef ANTIGRAVITY_EVICTION_OPTIONS_H
#define ANTIGRAVITY_EVICTION_OPTIONS_H

#include "options.h"

#include <antigravity/eviction.h>

typedef struct eviction_options {
    ag_eviction_params params;
    uint32_t threshold_mb; /* of memory available; 0: not watched */
    double target_ratio;
    ag_spill_params spill; /* no path: nothing is spilled */
    uint32_t spill_mib;    /* most; 0: no limit */
    bool watch;            /* the threshold was asked for */
} eviction_options;

eviction_options eviction_options_defaults(void);
option_group eviction_choice_group(eviction_options *o); /* the policy and its budget */
option_group eviction_rules_group(eviction_options *o);  /* what policies go by */
option_group eviction_memory_group(eviction_options *o); /* when the system's memory is short */

/* "keydiff"; "512", "25%" or "64MiB"; "adaptive". False: the reason is in why[MESSAGE_SIZE]. */
bool eviction_parse_policy(ag_eviction_params *p, const char *value, char *message);
bool eviction_parse_budget(ag_eviction_params *p, const char *value, char *message);
bool eviction_parse_heads(ag_eviction_params *p, const char *value, char *message);
/* The policy can share slots among heads as the parameters say; else the reason is in why. */
bool eviction_suits_heads(const ag_eviction_params *p, const ag_eviction_policy *policy,
                          char *message);

/* Once all options are read: completes the parameters. Returns an exit code, having said what an
 * option without its policy means. */
int eviction_options_check(eviction_options *o);

/* The parameters, which point to the options. */
ag_eviction_params eviction_params(const eviction_options *o);

/* The name of the policy, "none" included. */
const char *eviction_policy_name(const eviction_options *o);

/* For ag_eviction_params.on_eviction: one line on standard error. */
void eviction_report(void *user, const ag_eviction *e);

#endif
