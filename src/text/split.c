/* SPDX-License-Identifier: Apache-2.0 */
#include "core/alloc.h"
#include "core/fail.h"
#include "core/interrupt.h"
#include "text/pretokenizer.h"
#include "text/unicode_recent.h"
#include "text/utf8.h"

#include <utf8proc.h>

static ag_status add_piece(ag_piece_list *l, size_t start, size_t end, ag_error *err) {
    AG_TRY(AG_GROW(l->data, &l->cap, l->n + 1, err));
    l->data[l->n++] = (ag_piece){start, end - start};
    return AG_OK;
}

/* Parts of one piece, added from left to right. */
typedef struct parts {
    const ag_splitter *s;
    ag_piece_list *out;
    size_t first;    /* index in `out` of the first part */
    size_t base;     /* start of the piece in the text */
    bool prev_match; /* the previous part was a match; false at the start */
} parts;

static ag_status add_part(parts *p, size_t start, size_t end, bool match, ag_error *err) {
    bool prev = p->prev_match, joins = false;
    if (p->s->invert) match = !match;
    p->prev_match = match;
    switch (p->s->behavior) {
    case AG_SPLIT_REMOVED:
        if (match) return AG_OK;
        break;
    case AG_SPLIT_ISOLATED:
        break;
    case AG_SPLIT_MERGED_WITH_PREVIOUS:
        joins = match && !prev;
        break;
    case AG_SPLIT_MERGED_WITH_NEXT:
        joins = !match && prev;
        break;
    case AG_SPLIT_CONTIGUOUS:
        joins = match == prev;
        break;
    }
    if (joins && p->out->n > p->first) {
        ag_piece *last = &p->out->data[p->out->n - 1];
        last->len = p->base + end - last->start;
        return AG_OK;
    }
    return add_piece(p->out, p->base + start, p->base + end, err);
}

/* Adds the match text[start..end) and the text between it and *done, the end of the previous
 * match. */
static ag_status add_match(parts *p, size_t *done, size_t start, size_t end, ag_error *err) {
    if (*done < start) AG_TRY(add_part(p, *done, start, false, err));
    *done = end;
    return add_part(p, start, end, true, err);
}

static bool in_class(ag_char_class c, uint32_t cp) {
    if (c == AG_CLASS_WHITE_SPACE) return ag_is_white_space(cp);
    if (cp < 0x80) return cp >= '0' && cp <= '9';
    utf8proc_category_t cat = utf8proc_category((int32_t)cp);
    return cat == UTF8PROC_CATEGORY_ND || cat == UTF8PROC_CATEGORY_NL ||
           cat == UTF8PROC_CATEGORY_NO || ag_unicode_recent_has(cp, 'N');
}

static ag_status split_at_class(parts *p, const char *text, size_t len, ag_error *err) {
    size_t done = 0;
    for (size_t i = 0, step = 0; i < len; step++) {
        uint32_t cp;
        size_t n = ag_utf8_get(text + i, &cp);
        if (ag_interrupted_at(step))
            return AG_FAIL(err, CANCELLED, "splitting the text: interrupted");
        if (in_class(p->s->char_class, cp)) AG_TRY(add_match(p, &done, i, i + n, err));
        i += n;
    }
    return done < len ? add_part(p, done, len, false, err) : AG_OK;
}

static ag_status split_at_pattern(parts *p, ag_cursor *c, const char *text, size_t len,
                                  ag_error *err) {
    size_t done = 0, start, end;
    bool found;
    ag_cursor_reset(c, text, len);
    for (size_t n = 0;; n++) {
        if (ag_interrupted_at(n)) return AG_FAIL(err, CANCELLED, "splitting the text: interrupted");
        AG_TRY(ag_cursor_next(c, &start, &end, &found, err));
        if (!found) break;
        AG_TRY(add_match(p, &done, start, end, err));
    }
    return done < len ? add_part(p, done, len, false, err) : AG_OK;
}

/* Drops empty pieces. Empty parts matter while parts are merged. */
static void drop_empty(ag_piece_list *l, size_t first) {
    size_t n = first;
    for (size_t i = first; i < l->n; i++) {
        if (l->data[i].len) l->data[n++] = l->data[i];
    }
    l->n = n;
}

ag_status ag_split_pieces(const ag_splitter *s, ag_pieces *p, ag_error *err) {
    ag_cursor c = {0};
    ag_status st = AG_OK;
    ag_piece_list *out = &p->list_scratch;
    out->n = 0;
    if (s->pattern) AG_TRY(ag_cursor_open(&c, s->pattern, err));
    size_t old_start = p->list.n ? p->list.data[0].start : 0;
    for (size_t i = 0; i < p->list.n && st == AG_OK; i++) {
        ag_piece piece = p->list.data[i];
        parts split = {.s = s, .out = out, .first = out->n, .base = piece.start};
        const char *text = p->text + piece.start;
        st = s->pattern ? split_at_pattern(&split, &c, text, piece.len, err)
                        : split_at_class(&split, text, piece.len, err);
        drop_empty(out, split.first);
    }
    if (s->pattern) ag_cursor_close(&c);
    if (out->n == 0 || out->data[0].start != old_start) p->at_start = false;
    ag_piece_list swap = p->list;
    p->list = *out;
    *out = swap;
    return st;
}
