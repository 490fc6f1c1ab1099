/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one schema's compilation, and sets of schemas. */
#ifndef AG_CONSTRAIN_SCHEMA_COMPILER_H
#define AG_CONSTRAIN_SCHEMA_COMPILER_H

#include "constrain/arena.h"
#include "constrain/interner.h"
#include "constrain/regex/text_dfa.h"
#include "constrain/schema/document.h"

/* A set of schemas which all must hold: numbers of the document times 2, plus 1 for one that must
 * not hold. Goal 0 is the empty set: anything. */
typedef uint32_t ag_goal;
#define AG_GOAL_ANY 0u
#define AG_GOAL_NEVER UINT32_MAX

typedef struct ag_dfa_list ag_dfa_list;

/* Everything that lives as long as a schema is being compiled. */
typedef struct ag_shaper {
    ag_arena arena;
    ag_schema_doc doc;
    ag_interner goals;
    struct ag_goal_ways *expanded; /* by goal */
    size_t n_expanded, expanded_cap;
    ag_dfa_list *dfas;         /* to be released */
    ag_dfa_list *regexes[256]; /* those of regular expressions, by hash */
    ag_text_limits limits;
    size_t work, most_work; /* shapes combined */
    int depth;
    ag_error *err;
} ag_shaper;

ag_status ag_shaper_init(ag_shaper *s, const char *text, size_t n, const ag_text_limits *limits,
                         ag_error *err);
void ag_shaper_free(ag_shaper *s);

void *ag_shaper_get(ag_shaper *s, size_t n, size_t size); /* NULL: see ag_shaper_no_memory */
ag_status ag_shaper_no_memory(ag_shaper *s);
/* A dfa that lives as long as the shaper; *d is moved. */
ag_status ag_shaper_keep(ag_shaper *s, ag_text_dfa *d, const ag_text_dfa **out);

/* Of a regular expression, which lives as long as the shaper: made once for each. */
ag_status ag_shaper_regex(ag_shaper *s, const char *regex, size_t n, bool search,
                          const ag_text_dfa **out);
/* So many more steps of combining: AG_LIMIT when they are too many. */
ag_status ag_shaper_charge(ag_shaper *s, size_t steps);

ag_status ag_goal_of(ag_shaper *s, uint32_t schema, bool negative, ag_goal *out);
ag_status ag_goal_and(ag_shaper *s, ag_goal a, ag_goal b, ag_goal *out);

/* AG_FORMAT and AG_UNSUPPORTED with the place of a keyword. */
ag_status ag_schema_malformed(ag_shaper *s, uint32_t id, const char *keyword, const char *why);
ag_status ag_schema_unsupported(ag_shaper *s, uint32_t id, const char *keyword, const char *why);

#endif
