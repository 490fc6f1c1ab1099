/* SPDX-License-Identifier: Apache-2.0 */
/* Pre-tokenizer of a tokenizer: splits a text into the pieces that the model encodes separately. */
#ifndef AG_TEXT_PRETOKENIZER_H
#define AG_TEXT_PRETOKENIZER_H

#include "text/bytes.h"
#include "text/regex.h"

typedef struct ag_pretokenizer {
    struct ag_pretokenizer_step *steps; /* none: the entire text is one piece */
    size_t n, cap;
} ag_pretokenizer;

/* Treatment of the matches at which a text is split. */
typedef enum ag_split_behavior {
    AG_SPLIT_REMOVED,
    AG_SPLIT_ISOLATED,
    AG_SPLIT_MERGED_WITH_PREVIOUS,
    AG_SPLIT_MERGED_WITH_NEXT,
    AG_SPLIT_CONTIGUOUS,
} ag_split_behavior;

typedef enum ag_char_class { AG_CLASS_NONE, AG_CLASS_NUMERIC, AG_CLASS_WHITE_SPACE } ag_char_class;

typedef struct ag_splitter {
    ag_pattern *pattern; /* owned; NULL: each character of char_class is a match */
    ag_char_class char_class;
    ag_split_behavior behavior;
    bool invert; /* swaps the roles of matches and the text between them */
} ag_splitter;

/* Add a step to a zeroed or growing pre-tokenizer. The caller must call ag_pretokenizer_free(),
 * also after a failure. ByteLevel is prefix, split, bytes; Metaspace is spaces, prefix, split. */
ag_status ag_pretokenizer_add_split(ag_pretokenizer *pt, ag_splitter splitter, ag_error *err);
ag_status ag_pretokenizer_add_regex(ag_pretokenizer *pt, const char *regex, const char *path,
                                    ag_split_behavior behavior, bool invert, ag_error *err);
/* Inserts s, one character, before each piece that does not start with it; first_only: only at the
 * start of the text. */
ag_status ag_pretokenizer_add_prefix(ag_pretokenizer *pt, const char *s, size_t n, bool first_only,
                                     ag_error *err);
/* Replaces ' ' by s, one character. */
ag_status ag_pretokenizer_add_spaces(ag_pretokenizer *pt, const char *s, size_t n, ag_error *err);
/* Replaces each byte by its character of the byte-level alphabet. */
ag_status ag_pretokenizer_add_bytes(ag_pretokenizer *pt, ag_error *err);
/* pretokenizer_json.c: reads the "pre_tokenizer" of a tokenizer.json. v may be NULL or null. */
ag_status ag_pretokenizer_read_json(ag_pretokenizer *pt, const json_t *v, ag_error *err);
void ag_pretokenizer_free(ag_pretokenizer *pt);

/* Pattern of GPT-2, which ByteLevel uses if use_regex is set. */
#define AG_REGEX_GPT2 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

typedef struct ag_piece {
    size_t start, len;
} ag_piece;

typedef struct ag_piece_list {
    ag_piece *data;
    size_t n, cap;
} ag_piece_list;

/* Pieces of a text while it is split. Zero-initialise; free with ag_pieces_free(). */
typedef struct ag_pieces {
    const char *text; /* text of the pieces: the caller's, or own.data */
    ag_piece_list list, list_scratch;
    ag_text own, own_scratch;
    bool at_start; /* the first piece starts at the start of the input */
} ag_pieces;
void ag_pieces_free(ag_pieces *p);

/* Splits text[0..len), which is borrowed while p is in use. at_start: no text precedes it. */
ag_status ag_pretokenize(const ag_pretokenizer *pt, const char *text, size_t len, bool at_start,
                         ag_pieces *p, ag_error *err);

/* split.c: splits each of p's pieces. */
ag_status ag_split_pieces(const ag_splitter *s, ag_pieces *p, ag_error *err);

#endif
