/* SPDX-License-Identifier: Apache-2.0 */
/* Lexer: splits the text of a template into tokens and applies trim_blocks and lstrip_blocks. */
#ifndef AG_JINJA_PARSE_LEXER_H
#define AG_JINJA_PARSE_LEXER_H

#include "jinja/arena.h"

#include <antigravity/status.h>
#include <stdint.h>

typedef enum ag_jtoken_kind {
    AG_JT_EOF,
    AG_JT_DATA,
    AG_JT_BLOCK_BEGIN,
    AG_JT_BLOCK_END,
    AG_JT_VARIABLE_BEGIN,
    AG_JT_VARIABLE_END,
    AG_JT_NAME,
    AG_JT_STRING, /* text: without quotes, escapes resolved */
    AG_JT_INTEGER,
    AG_JT_FLOAT,
    AG_JT_ADD,
    AG_JT_SUB,
    AG_JT_MUL,
    AG_JT_DIV,
    AG_JT_FLOORDIV,
    AG_JT_MOD,
    AG_JT_POW,
    AG_JT_TILDE,
    AG_JT_LBRACKET,
    AG_JT_RBRACKET,
    AG_JT_LPAREN,
    AG_JT_RPAREN,
    AG_JT_LBRACE,
    AG_JT_RBRACE,
    AG_JT_EQ,
    AG_JT_NE,
    AG_JT_GT,
    AG_JT_GE,
    AG_JT_LT,
    AG_JT_LE,
    AG_JT_ASSIGN,
    AG_JT_DOT,
    AG_JT_COLON,
    AG_JT_PIPE,
    AG_JT_COMMA,
    AG_JT_SEMICOLON,
} ag_jtoken_kind;

typedef struct ag_jtoken {
    ag_jtoken_kind kind;
    uint32_t line;
    const char *text; /* in the arena */
    size_t len;
    int64_t integer;
    double number;
} ag_jtoken;

typedef struct ag_jtokens {
    ag_jtoken *items; /* ends with AG_JT_EOF */
    size_t n, cap;
} ag_jtokens;

/* Tokenizes text[0..n), which must be valid UTF-8 in the arena, with
 *  as line end. */
ag_status ag_jinja_tokenize(ag_jinja_arena *arena, const char *name, const char *text, size_t n,
                            ag_jtokens *out, ag_error *err);

/* Returns the token's name for messages. */
const char *ag_jtoken_name(ag_jtoken_kind kind);

#endif
