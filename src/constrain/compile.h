/* SPDX-License-Identifier: Apache-2.0 */
/* From what the caller asks for to rules. */
#ifndef AG_CONSTRAIN_COMPILE_H
#define AG_CONSTRAIN_COMPILE_H

#include "constrain/pda/json_rules.h"
#include "constrain/pda/token_tree.h"

/* Writes the rules into net, which may have failed inside: ag_pda_finish() tells. *root: the rule
 * of the whole text. */
ag_status ag_constraint_compile(ag_pda *pda, const ag_json_rules *json, const ag_token_tree *tokens,
                                const ag_constraint_params *params, uint32_t *root, ag_error *err);

#endif
