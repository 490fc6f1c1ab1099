/* SPDX-License-Identifier: Apache-2.0 */
/* The "pre_tokenizer" of a tokenizer.json: cuts a text into the pieces that BPE sees one by one. */
#ifndef AG_TEXT_PRETOKENIZER_H
#define AG_TEXT_PRETOKENIZER_H

#include "text/bytes.h"
#include "text/regex.h"

typedef struct ag_pretokenizer {
    struct ag_pretokenizer_step *steps; /* none: the whole text is one piece */
    size_t n, cap;
} ag_pretokenizer;

/* v may be NULL or null. Release with ag_pretokenizer_free whatever this returns. */
ag_status ag_pretokenizer_init(ag_pretokenizer *pt, const json_t *v, ag_error *err);
void ag_pretokenizer_free(ag_pretokenizer *pt);

typedef struct ag_piece {
    size_t start, len;
} ag_piece;

typedef struct ag_piece_list {
    ag_piece *data;
    size_t n, cap;
} ag_piece_list;

/* The pieces of a text while it is cut; zero-initialise, release with ag_pieces_free. */
typedef struct ag_pieces {
    const char *text; /* what the pieces lie in: the caller's text, or own.data */
    ag_piece_list list, list_spare;
    ag_text own, own_spare;
    bool at_start; /* the first piece begins where the whole input begins */
} ag_pieces;
void ag_pieces_free(ag_pieces *p);

/* text[0..len) is borrowed as long as p is read. at_start: no text came before this one. */
ag_status ag_pretokenize(const ag_pretokenizer *pt, const char *text, size_t len, bool at_start,
                         ag_pieces *p, ag_error *err);

/* split.c: what becomes of the matches when a text is cut at them. */
typedef enum ag_split_behavior {
    AG_SPLIT_REMOVED,
    AG_SPLIT_ISOLATED,
    AG_SPLIT_MERGED_WITH_PREVIOUS,
    AG_SPLIT_MERGED_WITH_NEXT,
    AG_SPLIT_CONTIGUOUS,
} ag_split_behavior;

typedef enum ag_char_class { AG_CLASS_NONE, AG_CLASS_NUMERIC, AG_CLASS_WHITE_SPACE } ag_char_class;

typedef struct ag_splitter {
    ag_pattern *pattern; /* owned; or, when NULL, one character of the class is a match */
    ag_char_class char_class;
    ag_split_behavior behavior;
    bool invert; /* what lies between the matches takes their place */
} ag_splitter;

/* Cuts each of p's pieces. */
ag_status ag_split_pieces(const ag_splitter *s, ag_pieces *p, ag_error *err);

#endif
