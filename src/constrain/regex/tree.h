/* SPDX-License-Identifier: Apache-2.0 */
/* Regex tree: a parsed regular expression. parse.c makes it, to_dfa.c compiles it. */
#ifndef AG_CONSTRAIN_REGEX_TREE_H
#define AG_CONSTRAIN_REGEX_TREE_H

#include "constrain/regex/char_set.h"

typedef enum ag_regex_kind {
    AG_REGEX_EMPTY,
    AG_REGEX_SET,    /* one character of sets[set] */
    AG_REGEX_CAT,    /* left, then right */
    AG_REGEX_ALT,    /* left or right */
    AG_REGEX_REPEAT, /* left, min to max times */
    AG_REGEX_BEGIN,  /* ^ */
    AG_REGEX_END,    /* $ */
    AG_REGEX_AHEAD,  /* lookahead: left must follow (negative: must not) and is not consumed */
    AG_REGEX_CALL,   /* in grammars: calls rule number `set` */
} ag_regex_kind;

#define AG_REGEX_NO_END UINT32_MAX
/* Maximum number of quantifiers on one atom; each repeats the result of those before it. */
enum { AG_REGEX_STACKED = 8 };
enum { AG_REGEX_NODES_MAX = 1 << 18 };

typedef struct ag_regex_node {
    ag_regex_kind kind;
    bool negative;
    uint32_t left, right, set;
    uint32_t min, max; /* AG_REGEX_NO_END: unlimited */
} ag_regex_node;

typedef struct ag_regex_tree {
    ag_regex_node *nodes;
    size_t n, cap;
    ag_char_set *sets; /* sorted */
    size_t n_sets, sets_cap;
    uint32_t root;
} ag_regex_tree;

/* Parses UTF-8 in ECMAScript's syntax with the flag u, as far as it describes a regular language.
 * An unknown escape stands for its character. Release *t with ag_regex_tree_free(), after a failure
 * too. */
ag_status ag_regex_parse(ag_regex_tree *t, const char *regex, size_t n, ag_error *err);
void ag_regex_tree_free(ag_regex_tree *t);

/* Adds a node. AG_LIMIT beyond AG_REGEX_NODES_MAX. */
ag_status ag_regex_tree_add(ag_regex_tree *t, ag_regex_node node, uint32_t *id, ag_error *err);
/* Adds an empty set, number t->n_sets - 1. *out is valid until the next call. */
ag_status ag_regex_tree_add_set(ag_regex_tree *t, ag_char_set **out, ag_error *err);

#endif
