/* SPDX-License-Identifier: Apache-2.0 */
/* Added tokens: strings that are found in a text before it is tokenized, the leftmost first and the
 * longest of those that start there. */
#ifndef AG_TEXT_ADDED_TOKENS_H
#define AG_TEXT_ADDED_TOKENS_H

#include "text/normalizer.h"
#include "text/vocab.h"

typedef struct ag_added_token {
    char *content; /* owned; the string to find */
    size_t len;
    int32_t id;
    bool special, single_word, lstrip, rstrip;
} ag_added_token;

typedef struct ag_added_set {
    ag_added_token *tokens; /* sorted by content */
    size_t n, cap;
    uint32_t first[257]; /* tokens[first[b]..first[b + 1]) start with byte b */
    ag_pattern *word;    /* matches a word character; NULL if no token is single_word */
} ag_added_set;

typedef struct ag_added_tokens {
    ag_added_set raw;        /* found in the original text */
    ag_added_set normalized; /* normalised, then found in the normalised text */
} ag_added_tokens;

/* Adds a token to a zeroed or growing set and to vocab. t has everything but its content. nm not
 * NULL: the token is found in normalised text. The caller must call ag_added_tokens_free(), also
 * after a failure. */
ag_status ag_added_tokens_add(ag_added_tokens *a, ag_added_token t, const char *content, size_t n,
                              const ag_normalizer *nm, ag_vocab *vocab, ag_error *err);
/* Builds the search tables. Must be called once, after the last token is added. */
ag_status ag_added_tokens_index(ag_added_tokens *a, ag_error *err);
/* Adds the tokens of a JSON array (or NULL) and builds the search tables. */
ag_status ag_added_tokens_read_json(ag_added_tokens *a, const json_t *list, ag_vocab *vocab,
                                    const ag_normalizer *nm, ag_error *err);
void ag_added_tokens_free(ag_added_tokens *a);

/* Iterates over the added tokens in one text. */
typedef struct ag_added_scan {
    const ag_added_set *set;
    const char *text;
    size_t len;
    bool parse_special; /* false: special tokens are skipped */
    size_t next;        /* offset of the next search */
    size_t done;        /* end of the last token that was returned */
} ag_added_scan;

/* Finds the next token. text[old s->done..*start) precedes it; s->done becomes its end. *id is -1
 * if there is none. */
ag_status ag_added_next(ag_added_scan *s, size_t *start, int32_t *id, ag_error *err);

#endif
