/* SPDX-License-Identifier: Apache-2.0 */
/* Schema keywords: reads keywords of a schema as value sets. */
#ifndef AG_CONSTRAIN_SCHEMA_KEYWORDS_H
#define AG_CONSTRAIN_SCHEMA_KEYWORDS_H

#include "constrain/schema/value_set.h"

/* type_keywords.c: reads the keywords of schemas[id] that apply to a single type, as one value
 * set. */
ag_status ag_schema_read_types(ag_schema_compiler *s, uint32_t id, const ag_value_set **out);
/* enum.c: reads a list of JSON values, of which one must match. */
ag_status ag_schema_read_values(ag_schema_compiler *s, uint32_t id, const char *keyword,
                                const json_t *const *values, size_t n, ag_alternatives *out);

/* formats.c: returns the regular expression of a "format"; NULL if the format is ignored.
 * *unsupported: JSON Schema defines the format, this library does not support it. */
const char *ag_schema_format_regex(const char *name, bool *unsupported);

#endif
