/* SPDX-License-Identifier: Apache-2.0 */
/* Text DFA: a regular language as a deterministic automaton over code points. Patterns, lengths and
 * excluded names are combined in this form. It is small, because it has neither bytes of UTF-8 nor
 * JSON escapes. */
#ifndef AG_CONSTRAIN_REGEX_TEXT_DFA_H
#define AG_CONSTRAIN_REGEX_TEXT_DFA_H

#include "constrain/regex/char_set.h"

typedef struct ag_text_edge {
    uint32_t lo, hi, state;
} ag_text_edge;

/* State 0 is the start. Without states the language is empty. Every state reaches an accepting
 * one. */
typedef struct ag_text_dfa {
    ag_text_edge *edges; /* per state sorted and disjoint */
    size_t n_edges, edges_cap;
    uint32_t *starts; /* [n_states + 1] offsets into edges */
    bool *accepts;    /* [n_states] */
    size_t n_states, states_cap;
} ag_text_dfa;

typedef struct ag_text_limits {
    size_t states; /* maximum of one automaton */
    size_t work;   /* maximum of steps to make one automaton */
    /* Steps of all automata so far, at most AG_TEXT_TOTAL_FACTOR * work; NULL: not counted. */
    size_t *spent;
} ag_text_limits;

enum { AG_TEXT_TOTAL_FACTOR = 2 };
/* Counts steps. Fails with AG_LIMIT beyond the limit of all automata. */
ag_status ag_text_limits_spend(const ag_text_limits *limits, size_t steps, ag_error *err);

void ag_text_dfa_free(ag_text_dfa *d);

/* Compiles a regular expression in ECMAScript's syntax. search: accepts texts that contain a match,
 * as "pattern" of a schema does; else the whole text must match. AG_FORMAT and AG_UNSUPPORTED name
 * the byte offset. *out is empty after a failure. */
ag_status ag_text_dfa_regex(ag_text_dfa *out, const char *regex, size_t n, bool search,
                            const ag_text_limits *limits, ag_error *err);
/* Accepts exactly these texts, which must be UTF-8. */
ag_status ag_text_dfa_texts(ag_text_dfa *out, const char *const *texts, const size_t *lens,
                            size_t n, const ag_text_limits *limits, ag_error *err);
/* Accepts texts of min to max characters; max SIZE_MAX: unlimited. Empty if min exceeds max. */
ag_status ag_text_dfa_lengths(ag_text_dfa *out, size_t min, size_t max,
                              const ag_text_limits *limits, ag_error *err);

/* AND: texts of a that are in b. EXCEPT: texts of a that are not in b. */
typedef enum ag_text_combine { AG_TEXT_AND, AG_TEXT_EXCEPT } ag_text_combine;
ag_status ag_text_dfa_combine(ag_text_dfa *out, const ag_text_dfa *a, const ag_text_dfa *b,
                              ag_text_combine how, const ag_text_limits *limits, ag_error *err);

bool ag_text_dfa_accepts(const ag_text_dfa *d, const char *text, size_t n);
/* Returns the number of texts; SIZE_MAX if there are more than max, or one has more than max
 * characters. */
size_t ag_text_dfa_count(const ag_text_dfa *d, size_t max);

/* ---- making an automaton ---- */

/* Adds a state, which becomes the newest. */
ag_status ag_text_dfa_add_state(ag_text_dfa *d, bool accepts, ag_error *err);
/* Adds an edge to the newest state. Edges must come in order. */
ag_status ag_text_dfa_add_edge(ag_text_dfa *d, uint32_t lo, uint32_t hi, uint32_t state,
                               ag_error *err);
/* Removes the states that reach no accepting one. */
ag_status ag_text_dfa_trim(ag_text_dfa *d, ag_error *err);

#endif
