/* SPDX-License-Identifier: Apache-2.0 */
/* From a JSON schema to rules. */
#ifndef AG_CONSTRAIN_SCHEMA_RULES_H
#define AG_CONSTRAIN_SCHEMA_RULES_H

#include "constrain/json_rules.h"

/* *start: what the text begins with. AG_UNSUPPORTED names the keyword and its place. */
ag_status ag_schema_compile(ag_net *net, const ag_json_rules *json, const char *text, size_t n,
                            bool any_order, uint32_t *start, ag_error *err);

#endif
