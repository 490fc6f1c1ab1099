/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers between limits, and multiples, as bytes. */
#ifndef AG_CONSTRAIN_SCHEMA_WRITE_NUMBER_H
#define AG_CONSTRAIN_SCHEMA_WRITE_NUMBER_H

#include "constrain/pda/pda.h"
#include "constrain/schema/value_set.h"

/* NOWHERE if there is none. *unsupported: the multiples need too many states. */
uint32_t ag_pda_number(ag_pda *pda, const ag_number_set *x, uint32_t next, bool *unsupported);
/* One number as it may be written. */
uint32_t ag_pda_number_value(ag_pda *pda, const json_t *value, uint32_t next);

#endif
