/* SPDX-License-Identifier: Apache-2.0 */
#include "text/pretokenizer.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "core/interrupt.h"
#include "text/byte_level.h"
#include "text/utf8.h"

#include <string.h>

/* Kinds of steps. Components are split into them: ByteLevel into PREFIX, SPLIT, BYTES; Metaspace
 * into SPACES, PREFIX, SPLIT. */
enum kind {
    SPLIT,  /* splits at the matches of the splitter */
    PREFIX, /* inserts str before a piece that does not start with it */
    SPACES, /* replaces ' ' by str */
    BYTES,  /* replaces each byte by its character of the byte-level alphabet */
};

struct ag_pretokenizer_step {
    enum kind kind;
    ag_splitter splitter;
    char str[4];
    size_t len;
    bool first_only; /* PREFIX: only at the start of the text */
};
typedef struct ag_pretokenizer_step step;

enum { MAX_STEPS = 64 };

static ag_status append_step(ag_pretokenizer *pt, step s, ag_error *err) {
    const ag_status st =
        pt->n < MAX_STEPS ? AG_GROW(pt->steps, &pt->cap, pt->n + 1, err)
                          : AG_FAIL(err, FORMAT, "pre_tokenizer has more than %d steps", MAX_STEPS);
    if (st == AG_OK) pt->steps[pt->n++] = s;
    else ag_pattern_destroy(s.splitter.pattern);
    return st;
}

ag_status ag_pretokenizer_add_split(ag_pretokenizer *pt, ag_splitter splitter, ag_error *err) {
    return append_step(pt, (step){.kind = SPLIT, .splitter = splitter}, err);
}

ag_status ag_pretokenizer_add_regex(ag_pretokenizer *pt, const char *regex, const char *path,
                                    ag_split_behavior behavior, bool invert, ag_error *err) {
    ag_splitter splitter = {.behavior = behavior, .invert = invert};
    AG_TRY(ag_pattern_regex(regex, strlen(regex), path, &splitter.pattern, err));
    return ag_pretokenizer_add_split(pt, splitter, err);
}

ag_status ag_pretokenizer_add_prefix(ag_pretokenizer *pt, const char *s, size_t n, bool first_only,
                                     ag_error *err) {
    step prefix = {.kind = PREFIX, .len = n, .first_only = first_only};
    memcpy(prefix.str, s, n);
    return append_step(pt, prefix, err);
}

ag_status ag_pretokenizer_add_spaces(ag_pretokenizer *pt, const char *s, size_t n, ag_error *err) {
    step spaces = {.kind = SPACES, .len = n};
    memcpy(spaces.str, s, n);
    return append_step(pt, spaces, err);
}

ag_status ag_pretokenizer_add_bytes(ag_pretokenizer *pt, ag_error *err) {
    return append_step(pt, (step){.kind = BYTES}, err);
}

void ag_pretokenizer_free(ag_pretokenizer *pt) {
    for (size_t i = 0; i < pt->n; i++) ag_pattern_destroy(pt->steps[i].splitter.pattern);
    ag_free(pt->steps);
    *pt = (ag_pretokenizer){0};
}

void ag_pieces_free(ag_pieces *p) {
    ag_free(p->list.data);
    ag_free(p->list_scratch.data);
    ag_text_free(&p->own);
    ag_text_free(&p->own_scratch);
    *p = (ag_pieces){0};
}

static ag_status rewrite_spaces(const step *s, const char *text, size_t len, ag_text *out,
                                ag_error *err) {
    size_t done = 0;
    for (const char *hit; (hit = memchr(text + done, ' ', len - done)) != NULL;) {
        AG_TRY(ag_text_append(out, text + done, (size_t)(hit - text) - done, err));
        AG_TRY(ag_text_append(out, s->str, s->len, err));
        done = (size_t)(hit - text) + 1;
        if (done == len) break;
    }
    return ag_text_append(out, text + done, len - done, err);
}

static ag_status rewrite_bytes(const char *text, size_t len, ag_text *out, ag_error *err) {
    enum { BYTES_AT_ONCE = 1 << 20 }; /* between two interrupt checks */
    AG_TRY(ag_text_reserve(out, 2 * len, err));
    for (size_t done = 0; done < len; done += BYTES_AT_ONCE) {
        const size_t left = len - done, n = left < BYTES_AT_ONCE ? left : BYTES_AT_ONCE;
        if (done && ag_interrupted())
            return AG_FAIL(err, CANCELLED, "splitting the text: interrupted");
        out->len += ag_byte_level_write(out->data + out->len, text + done, n);
    }
    return AG_OK;
}

static ag_status rewrite_piece(const step *s, const char *text, size_t len, bool at_start,
                               ag_text *out, ag_error *err) {
    if (s->kind == SPACES) return rewrite_spaces(s, text, len, out, err);
    if (s->kind == BYTES) return rewrite_bytes(text, len, out, err);
    bool has = len >= s->len && memcmp(text, s->str, s->len) == 0;
    if (!has && (at_start || !s->first_only)) AG_TRY(ag_text_append(out, s->str, s->len, err));
    return ag_text_append(out, text, len, err);
}

/* Rewrites all pieces into a new text, one after another. */
static ag_status rewrite_pieces(const step *s, ag_pieces *p, size_t limit, ag_error *err) {
    ag_text *out = &p->own_scratch;
    out->len = 0;
    for (size_t i = 0; i < p->list.n; i++) {
        ag_piece *piece = &p->list.data[i];
        size_t start = out->len;
        if (ag_interrupted_at(i)) return AG_FAIL(err, CANCELLED, "splitting the text: interrupted");
        AG_TRY(
            rewrite_piece(s, p->text + piece->start, piece->len, i == 0 && p->at_start, out, err));
        AG_TRY(ag_growth_check(out->len, limit, "pre_tokenizer", err));
        *piece = (ag_piece){start, out->len - start};
    }
    ag_text swap = p->own;
    p->own = *out;
    *out = swap;
    p->text = p->own.data;
    return AG_OK;
}

ag_status ag_pretokenize(const ag_pretokenizer *pt, const char *text, size_t len, bool at_start,
                         ag_pieces *p, ag_error *err) {
    AG_TRY(AG_GROW(p->list.data, &p->list.cap, 1, err));
    p->list.data[0] = (ag_piece){0, len};
    p->list.n = len > 0;
    p->text = text;
    p->at_start = at_start;
    size_t limit = ag_growth_limit(len);
    for (size_t i = 0; i < pt->n && p->list.n; i++) {
        const step *s = &pt->steps[i];
        AG_TRY(s->kind == SPLIT ? ag_split_pieces(&s->splitter, p, err)
                                : rewrite_pieces(s, p, limit, err));
    }
    return AG_OK;
}
