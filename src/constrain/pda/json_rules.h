/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of JSON that all schemas share: made once for a vocabulary and a spacing. */
#ifndef AG_CONSTRAIN_PDA_JSON_RULES_H
#define AG_CONSTRAIN_PDA_JSON_RULES_H

#include "constrain/pda/lazy_dfa.h"

#include <antigravity/constrain.h>

typedef struct ag_json_rules {
    ag_pda pda;
    ag_lazy_dfa dfa; /* all expanded */
    ag_json_spacing spacing;
    uint32_t value, object, array, string, name; /* rules */
    uint32_t indent;                             /* a rule: what a line begins with */
    /* States of `string`: before the opening quote, and between two characters; and of `name`. */
    uint32_t string_start, string_inside, name_start, name_inside;
} ag_json_rules;

/* Release with ag_json_rules_free whatever this returns. */
ag_status ag_json_rules_make(ag_json_rules *r, ag_json_spacing spacing, ag_error *err);
void ag_json_rules_free(ag_json_rules *r);

/* The space that may stand behind "{", "[", "," and ":" and before "}" and "]". */
uint32_t ag_json_space(ag_pda *pda, ag_json_spacing spacing, uint32_t indent, uint32_t next);
/* Any number. */
uint32_t ag_json_number(ag_pda *pda, uint32_t next);

#endif
