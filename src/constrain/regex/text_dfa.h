/* SPDX-License-Identifier: Apache-2.0 */
/* Regular languages of texts, as deterministic automata over code points: what patterns, lengths
 * and excluded names are combined with. Small, because no byte of UTF-8 and no escape is in them.
 */
#ifndef AG_CONSTRAIN_REGEX_TEXT_DFA_H
#define AG_CONSTRAIN_REGEX_TEXT_DFA_H

#include "constrain/regex/char_set.h"

typedef struct ag_text_edge {
    uint32_t lo, hi, state;
} ag_text_edge;

/* State 0 is the start. A dfa without states accepts nothing. Every state reaches an accepting one.
 */
typedef struct ag_text_dfa {
    ag_text_edge *edges; /* of a state sorted, not overlapping */
    size_t n_edges, edges_cap;
    uint32_t *starts; /* [n_states + 1] */
    bool *accepts;    /* [n_states] */
    size_t n_states, states_cap;
} ag_text_dfa;

typedef struct ag_text_limits {
    size_t states; /* of one automaton */
    size_t work;   /* steps of making one */
    size_t *spent; /* steps of all so far, at most AG_TEXT_TOTAL_FACTOR times as many; NULL: any */
} ag_text_limits;

enum { AG_TEXT_TOTAL_FACTOR = 2 };
/* So many more steps: AG_LIMIT when they are too many. */
ag_status ag_text_limits_spend(const ag_text_limits *limits, size_t steps, ag_error *err);

void ag_text_dfa_free(ag_text_dfa *d);

/* Of a regular expression in ECMAScript's syntax. `search`: texts in which it is found anywhere, as
 * "pattern" of a schema asks; else it must be all of the text. AG_FORMAT and AG_UNSUPPORTED give
 * the byte offset. *out is empty after a failure. */
ag_status ag_text_dfa_regex(ag_text_dfa *out, const char *regex, size_t n, bool search,
                            const ag_text_limits *limits, ag_error *err);
/* Of the texts themselves, UTF-8. */
ag_status ag_text_dfa_texts(ag_text_dfa *out, const char *const *texts, const size_t *lens,
                            size_t n, const ag_text_limits *limits, ag_error *err);
/* Texts of at least `least` and at most `most` characters; SIZE_MAX: no end. */
ag_status ag_text_dfa_lengths(ag_text_dfa *out, size_t min, size_t max,
                              const ag_text_limits *limits, ag_error *err);

/* Texts of a that are (AND), or are not (EXCEPT), texts of b. */
typedef enum ag_text_combine { AG_TEXT_AND, AG_TEXT_EXCEPT } ag_text_combine;
ag_status ag_text_dfa_combine(ag_text_dfa *out, const ag_text_dfa *a, const ag_text_dfa *b,
                              ag_text_combine how, const ag_text_limits *limits, ag_error *err);

bool ag_text_dfa_accepts(const ag_text_dfa *d, const char *text, size_t n);
/* The number of texts, or SIZE_MAX for more than `most`. */
size_t ag_text_dfa_count(const ag_text_dfa *d, size_t max);

/* ---- making one, state by state ---- */

/* Opens the next state. */
ag_status ag_text_dfa_add_state(ag_text_dfa *d, bool accepts, ag_error *err);
/* Edges of the newest state come in order. */
ag_status ag_text_dfa_add_edge(ag_text_dfa *d, uint32_t lo, uint32_t hi, uint32_t state,
                               ag_error *err);
/* Takes out what reaches no accepting state. */
ag_status ag_text_dfa_trim(ag_text_dfa *d, ag_error *err);

#endif
