/* SPDX-License-Identifier: Apache-2.0 */
/* One number or text, as the format languages of Python lay it out. */
#ifndef AG_CHAT_JINJA_FORMAT_H
#define AG_CHAT_JINJA_FORMAT_H

#include "chat/jinja_context.h"

typedef struct ag_jformat_spec {
    uint32_t fill; /* a character; 0: as the type has it */
    char align;    /* < > = ^; 0: as the type has it */
    char sign;     /* + - or space */
    bool alternate, zero;
    char grouping;            /* , or _; 0: none */
    int64_t width, precision; /* -1: none */
    char type;                /* 0: none */
} ag_jformat_spec;

/* [[fill]align][sign][#][0][width][grouping][.precision][type] */
bool ag_jformat_parse(ag_jctx *c, const ag_jstr *text, ag_jformat_spec *out);
/* format(v, spec) */
bool ag_jappend_format(ag_jctx *c, ag_jbuf *b, ag_jv v, const ag_jformat_spec *spec);
/* Pads what s holds. Numbers go right and texts left unless the spec says otherwise. */
bool ag_jappend_padded(ag_jctx *c, ag_jbuf *b, ag_jstr *s, const ag_jformat_spec *spec,
                       char default_align, size_t n_sign);

#endif
