/* SPDX-License-Identifier: Apache-2.0 */
/* --speculate, --draft-max and --draft-model: speculative decoding. */
#ifndef ANTIGRAVITY_SPECULATION_OPTIONS_H
#define ANTIGRAVITY_SPECULATION_OPTIONS_H

#include "options.h"

#include <antigravity/session.h>

typedef struct speculation_options {
    ag_speculate how;
    uint32_t draft_max;
    const char *draft_model; /* NULL: none */
} speculation_options;

speculation_options speculation_defaults(void);
option_group speculation_group(speculation_options *o);
void speculation_apply(const speculation_options *o, ag_generate_params *p);
/* Returns "auto", "off" or "always". */
const char *speculation_name(const speculation_options *o);

#endif
