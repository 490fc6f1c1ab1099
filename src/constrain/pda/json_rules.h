/* SPDX-License-Identifier: Apache-2.0 */
/* JSON rules: the PDA and the lazy DFA of plain JSON. Constraints of one vocabulary and spacing
 * share them, so their numbers carry AG_PDA_SHARED. */
#ifndef AG_CONSTRAIN_PDA_JSON_RULES_H
#define AG_CONSTRAIN_PDA_JSON_RULES_H

#include "constrain/pda/lazy_dfa.h"

#include <antigravity/constrain.h>

typedef struct ag_json_rules {
    ag_pda pda;
    ag_lazy_dfa dfa; /* every state is expanded */
    ag_json_spacing spacing;
    uint32_t value, object, array, string, name, integer, number; /* rules */
    uint32_t indent;                                              /* rule: the indent of a line */
    /* States of the rule `string` before the opening quote and between two characters; the same of
     * `name`. */
    uint32_t string_start, string_inside, name_start, name_inside;
} ag_json_rules;

/* Makes the rules of a spacing. Release *r with ag_json_rules_free(), after a failure too. */
ag_status ag_json_rules_make(ag_json_rules *r, ag_json_spacing spacing, ag_error *err);
void ag_json_rules_free(ag_json_rules *r);

/* Writes the space that may follow "{", "[", "," and ":" or precede "}" and "]", then next. */
uint32_t ag_json_space(ag_pda *pda, ag_json_spacing spacing, uint32_t indent, uint32_t next);
/* Digits of a number before the point, and after it, where no limit bounds them. Models may repeat
 * a digit endlessly. This bound fits 64-bit integers and doubles as printers write them: the
 * longest is 0.0000012345678901234567 of JavaScript. */
#define AG_JSON_DIGITS_MAX 22
#define AG_JSON_MORE_DIGITS 21 /* after the first one, which is not 0 */

#endif
