/* SPDX-License-Identifier: Apache-2.0 */
/* Schema compiler: the state of one schema's compilation, and sets of schemas. */
#ifndef AG_CONSTRAIN_SCHEMA_COMPILER_H
#define AG_CONSTRAIN_SCHEMA_COMPILER_H

#include "constrain/arena.h"
#include "constrain/interner.h"
#include "constrain/regex/text_dfa.h"
#include "constrain/schema/document.h"

/* A set of schemas that must all hold, as an id of ag_schema_compiler.sets. A member is a schema's
 * number times 2, plus 1 if the schema must not hold. Id 0 is the empty set, which allows any
 * value. AG_SCHEMA_NONE allows no value. */
typedef uint32_t ag_schema_set;
#define AG_SCHEMA_ANY 0u
#define AG_SCHEMA_NONE UINT32_MAX

typedef struct ag_dfa_list ag_dfa_list;

/* Everything that lives as long as one compilation. */
typedef struct ag_schema_compiler {
    ag_arena arena;
    ag_schema_doc doc;
    ag_interner sets;
    struct ag_schema_expansion *expanded; /* [n_expanded] by schema set */
    size_t n_expanded, expanded_cap;
    ag_dfa_list *dfas;         /* released at the end */
    ag_dfa_list *regexes[256]; /* automata of regular expressions, by hash */
    ag_text_limits limits;
    size_t work, max_work; /* steps of combining value sets */
    int depth;
    ag_error *err;
} ag_schema_compiler;

ag_status ag_schema_compiler_init(ag_schema_compiler *s, const char *text, size_t n,
                                  const ag_text_limits *limits, ag_error *err);
void ag_schema_compiler_free(ag_schema_compiler *s);

/* Returns n * size zeroed bytes that live as long as the compilation. NULL: fail with
 * ag_schema_no_memory(). */
void *ag_schema_alloc(ag_schema_compiler *s, size_t n, size_t size);
/* Fails with AG_NOMEM, or with AG_LIMIT if the schema has used up much of its memory limit. */
ag_status ag_schema_no_memory(ag_schema_compiler *s);
/* Moves *d into the compiler, which releases it at the end, and sets *out. */
ag_status ag_schema_adopt(ag_schema_compiler *s, ag_text_dfa *d, const ag_text_dfa **out);

/* Returns the automaton of a regular expression, which is made once. `regex` must outlive the
 * compiler. */
ag_status ag_schema_regex(ag_schema_compiler *s, const char *regex, size_t n, bool search,
                          const ag_text_dfa **out);
/* Counts steps of combining value sets. Fails with AG_LIMIT beyond max_work. */
ag_status ag_schema_charge(ag_schema_compiler *s, size_t steps);

/* Returns the set of one schema, or of its negation. */
ag_status ag_schema_set_of(ag_schema_compiler *s, uint32_t schema, bool negative,
                           ag_schema_set *out);
/* Returns the set of the members of a and b. AG_SCHEMA_NONE if it has a schema and its negation. */
ag_status ag_schema_set_and(ag_schema_compiler *s, ag_schema_set a, ag_schema_set b,
                            ag_schema_set *out);

/* Fail with AG_FORMAT or AG_UNSUPPORTED. The message begins with the path of the keyword (NULL: of
 * the schema). */
ag_status ag_schema_malformed(ag_schema_compiler *s, uint32_t id, const char *keyword,
                              const char *message);
ag_status ag_schema_unsupported(ag_schema_compiler *s, uint32_t id, const char *keyword,
                                const char *message);

#endif
