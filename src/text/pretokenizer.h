/* SPDX-License-Identifier: Apache-2.0 */
/* The pre-tokenizer of a tokenizer: cuts a text into the pieces that BPE sees one by one. */
#ifndef AG_TEXT_PRETOKENIZER_H
#define AG_TEXT_PRETOKENIZER_H

#include "text/bytes.h"
#include "text/regex.h"

typedef struct ag_pretokenizer {
    struct ag_pretokenizer_step *steps; /* none: the whole text is one piece */
    size_t n, cap;
} ag_pretokenizer;

/* What becomes of the matches when a text is cut at them. */
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

/* Steps are added to a zeroed pre-tokenizer; release with ag_pretokenizer_free whatever these
 * return. ByteLevel is a prefix, a split and bytes; Metaspace is spaces, a prefix and a split. */
ag_status ag_pretokenizer_add_split(ag_pretokenizer *pt, ag_splitter splitter, ag_error *err);
ag_status ag_pretokenizer_add_regex(ag_pretokenizer *pt, const char *regex, const char *path,
                                    ag_split_behavior behavior, bool invert, ag_error *err);
/* s, one character, goes before each piece that does not begin with it; or only before the piece at
 * the very start. */
ag_status ag_pretokenizer_add_prefix(ag_pretokenizer *pt, const char *s, size_t n, bool first_only,
                                     ag_error *err);
/* ' ' becomes s, one character. */
ag_status ag_pretokenizer_add_spaces(ag_pretokenizer *pt, const char *s, size_t n, ag_error *err);
/* Each byte becomes its character of the byte-level alphabet. */
ag_status ag_pretokenizer_add_bytes(ag_pretokenizer *pt, ag_error *err);
/* pretokenizer_json.c: the "pre_tokenizer" of a tokenizer.json; v may be NULL or null. */
ag_status ag_pretokenizer_read_json(ag_pretokenizer *pt, const json_t *v, ag_error *err);
void ag_pretokenizer_free(ag_pretokenizer *pt);

/* The split of GPT-2, which ByteLevel means by use_regex. */
#define AG_REGEX_GPT2 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

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
    ag_piece_list list, list_scratch;
    ag_text own, own_scratch;
    bool at_start; /* the first piece begins where the whole input begins */
} ag_pieces;
void ag_pieces_free(ag_pieces *p);

/* text[0..len) is borrowed as long as p is read. at_start: no text came before this one. */
ag_status ag_pretokenize(const ag_pretokenizer *pt, const char *text, size_t len, bool at_start,
                         ag_pieces *p, ag_error *err);

/* split.c: cuts each of p's pieces. */
ag_status ag_split_pieces(const ag_splitter *s, ag_pieces *p, ag_error *err);

#endif
