/* SPDX-License-Identifier: Apache-2.0 */
/* Added tokens: spellings that are cut out of a text before anything else
 * happens to it, the leftmost first and the longest among those. */
#ifndef AG_TEXT_ADDED_TOKENS_H
#define AG_TEXT_ADDED_TOKENS_H

#include "text/normalizer.h"
#include "text/vocab.h"

typedef struct ag_added_token {
    char *content; /* owned; what is looked for */
    size_t len;
    int32_t id;
    bool special, single_word, lstrip, rstrip;
} ag_added_token;

typedef struct ag_added_set {
    ag_added_token *tokens; /* sorted by content */
    size_t n, cap;
    uint32_t first[257]; /* tokens[first[b]..first[b + 1]) begin with the byte b */
    ag_pattern *word;    /* a word character; NULL when no token is single_word */
} ag_added_set;

typedef struct ag_added_tokens {
    ag_added_set raw;        /* looked for in the text as it is */
    ag_added_set normalized; /* looked for, normalised themselves, in the normalised text */
} ag_added_tokens;

/* Adds a token to a zeroed or growing set, and to vocab; t has all but its content. With nm it is
 * looked for in normalised text. Release with ag_added_tokens_free whatever this returns. */
ag_status ag_added_tokens_add(ag_added_tokens *a, ag_added_token t, const char *content, size_t n,
                              const ag_normalizer *nm, ag_vocab *vocab, ag_error *err);
/* Once, when all are in. */
ag_status ag_added_tokens_index(ag_added_tokens *a, ag_error *err);
/* Both, of a JSON array or NULL. */
ag_status ag_added_tokens_read_json(ag_added_tokens *a, const json_t *list, ag_vocab *vocab,
                                    const ag_normalizer *nm, ag_error *err);
void ag_added_tokens_free(ag_added_tokens *a);

/* Walks over the tokens of one text. */
typedef struct ag_added_scan {
    const ag_added_set *set;
    const char *text;
    size_t len;
    bool parse_special; /* else special tokens are passed over */
    size_t next;        /* where to look */
    size_t done;        /* the end of what was given out */
} ag_added_scan;

/* The next token: text[s->done..*start) lies before it, and s->done becomes its end. *id is -1
 * when there is none. */
ag_status ag_added_next(ag_added_scan *s, size_t *start, int32_t *id, ag_error *err);

#endif
