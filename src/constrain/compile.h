/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles the parameters of a constraint into rules of a PDA. */
#ifndef AG_CONSTRAIN_COMPILE_H
#define AG_CONSTRAIN_COMPILE_H

#include "constrain/trigger.h"

/* Writes the rules of the constraint into pda. *root: the rule of the whole text. *trigger: owned;
 * NULL if there is none. An instruction may have failed without an error here: ag_pda_finish()
 * returns that status. */
ag_status ag_constraint_compile(ag_pda *pda, const ag_json_rules *json, const ag_token_tree *tokens,
                                const ag_constraint_params *params, uint32_t *root,
                                ag_trigger **trigger, ag_error *err);

#endif
