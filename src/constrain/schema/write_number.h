/* SPDX-License-Identifier: Apache-2.0 */
/* Writes sets of numbers as PDA instructions: limits, multiples and listed values. */
#ifndef AG_CONSTRAIN_SCHEMA_WRITE_NUMBER_H
#define AG_CONSTRAIN_SCHEMA_WRITE_NUMBER_H

#include "constrain/pda/pda.h"
#include "constrain/schema/value_set.h"

/* Writes a number of the set, then next. Returns AG_PDA_FAIL if there is none. *unsupported: the
 * multiples or limits need too many states or digits. */
uint32_t ag_pda_number(ag_pda *pda, const ag_number_set *x, uint32_t next, bool *unsupported);
/* Writes the spellings of one number, then next. */
uint32_t ag_pda_number_value(ag_pda *pda, const json_t *value, uint32_t next);

#endif
