/* SPDX-License-Identifier: Apache-2.0 */
/* What keywords of a schema say. */
#ifndef AG_CONSTRAIN_SCHEMA_KEYWORDS_H
#define AG_CONSTRAIN_SCHEMA_KEYWORDS_H

#include "constrain/schema/value_set.h"

/* type_keywords.c: what the keywords of schemas[id] that speak of one type say, in one shape. */
ag_status ag_schema_read_types(ag_schema_compiler *s, uint32_t id, const ag_value_set **out);
/* The shape of one JSON value, or of one of several. */
ag_status ag_schema_read_values(ag_schema_compiler *s, uint32_t id, const char *keyword,
                                const json_t *const *values, size_t n, ag_alternatives *out);
/* A text automaton of a "pattern" or a name of patternProperties. */
ag_status ag_schema_pattern(ag_schema_compiler *s, uint32_t id, const char *keyword,
                            const char *pattern, size_t n, const ag_text_dfa **out);

/* formats.c: the regular expression of a "format"; NULL: it says nothing. *unsupported: a format
 * of JSON Schema that is none here. */
const char *ag_schema_format_regex(const char *name, bool *unsupported);

#endif
