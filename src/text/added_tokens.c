/* SPDX-License-Identifier: Apache-2.0 */
#include "text/added_tokens.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "core/interrupt.h"
#include "text/json_get.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Bounds the search time per byte of text that a hostile file can cause. */
enum { MAX_CONTENT = 4096 };

static ag_status set_token_content(ag_added_token *t, const char *content, size_t n,
                                   const ag_normalizer *nm, ag_error *err) {
    ag_text text = {0}, scratch = {0};
    bool lost_start = false;
    ag_status st = ag_normalizer_apply(nm, content, n, &text, &scratch, &lost_start, err);
    ag_text_free(&scratch);
    t->content = text.data;
    t->len = text.len;
    return st;
}

ag_status ag_added_tokens_add(ag_added_tokens *a, ag_added_token t, const char *content, size_t n,
                              const ag_normalizer *nm, ag_vocab *vocab, ag_error *err) {
    static const ag_normalizer none = {0};
    if (n > MAX_CONTENT) {
        return AG_FAIL(err, FORMAT, "content has %zu bytes, at most %d are allowed", n,
                       MAX_CONTENT);
    }
    AG_TRY(ag_vocab_add(vocab, content, n, t.id,
                        AG_VOCAB_ADDED | (t.special ? AG_VOCAB_SPECIAL : 0u), err));
    ag_added_set *set = nm ? &a->normalized : &a->raw;
    AG_TRY(AG_GROW(set->tokens, &set->cap, set->n + 1, err));
    const ag_status st = set_token_content(&t, content, n, nm ? nm : &none, err);
    set->tokens[set->n++] = t;
    return st;
}

static ag_status read_token(ag_added_tokens *a, const json_t *v, const char *path, ag_vocab *vocab,
                            const ag_normalizer *nm, ag_error *err) {
    const json_t *content = json_object_get(v, "content");
    ag_added_token t = {.id = (int32_t)json_integer_value(json_object_get(v, "id"))};
    bool normalized;
    AG_TRY(ag_json_bool(v, path, "special", false, &t.special, err));
    AG_TRY(ag_json_bool(v, path, "single_word", false, &t.single_word, err));
    AG_TRY(ag_json_bool(v, path, "lstrip", false, &t.lstrip, err));
    AG_TRY(ag_json_bool(v, path, "rstrip", false, &t.rstrip, err));
    AG_TRY(ag_json_bool(v, path, "normalized", !t.special, &normalized, err));
    size_t n = json_string_length(content);
    if (n == 0) return AG_OK;
    ag_status st = ag_added_tokens_add(a, t, json_string_value(content), n, normalized ? nm : NULL,
                                       vocab, err);
    return st == AG_OK ? st : ag_error_prefix(err, st, "%s", path);
}

/* Sorts by content. A normaliser can map two spellings to one: then the token that is not special
 * comes first, and of two such the higher id. */
static int by_content(const void *pa, const void *pb) {
    const ag_added_token *a = pa, *b = pb;
    int c = memcmp(a->content, b->content, a->len < b->len ? a->len : b->len);
    if (c) return c;
    if (a->len != b->len) return a->len < b->len ? -1 : 1;
    if (a->special != b->special) return a->special ? 1 : -1;
    return (a->id < b->id) - (a->id > b->id);
}

static ag_status index_by_byte(ag_added_set *set, ag_error *err) {
    bool single_word = false;
    if (set->n) qsort(set->tokens, set->n, sizeof *set->tokens, by_content);
    size_t i = 0;
    for (unsigned b = 0; b <= 256; b++) {
        /* Contents that a normaliser emptied come first and are never found. */
        while (i < set->n &&
               (set->tokens[i].len == 0 || (unsigned char)set->tokens[i].content[0] < b)) {
            i++;
        }
        set->first[b] = (uint32_t)i;
    }
    for (i = 0; i < set->n; i++) single_word |= set->tokens[i].single_word;
    if (!single_word) return AG_OK;
    static const char word[] = "[" AG_REGEX_WORD "]";
    return ag_pattern_regex(word, sizeof word - 1, "single_word", &set->word, err);
}

ag_status ag_added_tokens_index(ag_added_tokens *a, ag_error *err) {
    AG_TRY(index_by_byte(&a->raw, err));
    return index_by_byte(&a->normalized, err);
}

ag_status ag_added_tokens_read_json(ag_added_tokens *a, const json_t *list, ag_vocab *vocab,
                                    const ag_normalizer *nm, ag_error *err) {
    const json_t *v;
    size_t i;
    json_array_foreach(list, i, v) {
        char path[AG_JSON_PATH_BYTES];
        snprintf(path, sizeof path, "added_tokens[%zu]", i);
        AG_TRY(read_token(a, v, path, vocab, nm, err));
    }
    return ag_added_tokens_index(a, err);
}

static void free_set(ag_added_set *set) {
    for (size_t i = 0; i < set->n; i++) ag_free(set->tokens[i].content);
    ag_free(set->tokens);
    ag_pattern_destroy(set->word);
}

void ag_added_tokens_free(ag_added_tokens *a) {
    free_set(&a->raw);
    free_set(&a->normalized);
    *a = (ag_added_tokens){0};
}

/* Returns the first of tokens[lo..hi) whose byte d is at least c. Their bytes before d must be
 * equal. */
static size_t lower_bound(const ag_added_set *set, size_t lo, size_t hi, size_t d, unsigned c) {
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((unsigned char)set->tokens[mid].content[d] < c) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

/* Returns the longest token that text starts with, NULL if there is none. Each step narrows the
 * sorted range to tokens with one more equal byte. */
static const ag_added_token *longest_at(const ag_added_set *set, const char *text, size_t len) {
    unsigned c = (unsigned char)text[0];
    size_t lo = set->first[c], hi = set->first[c + 1];
    const ag_added_token *best = NULL;
    for (size_t d = 1; lo < hi; d++) {
        if (set->tokens[lo].len == d) best = &set->tokens[lo];
        while (lo < hi && set->tokens[lo].len == d) lo++;
        if (d == len) break;
        c = (unsigned char)text[d];
        lo = lower_bound(set, lo, hi, d, c);
        hi = lower_bound(set, lo, hi, d, c + 1);
    }
    return best;
}

static ag_status is_word(const ag_added_set *set, const char *text, size_t len, bool *result,
                         ag_error *err) {
    ag_cursor c;
    size_t start, end;
    AG_TRY(ag_cursor_open(&c, set->word, err));
    ag_cursor_reset(&c, text, len);
    ag_status st = ag_cursor_next(&c, &start, &end, result, err);
    ag_cursor_close(&c);
    return st;
}

/* Sets *result if text[start..end) has no word character on either side. */
static ag_status is_whole_word(const ag_added_scan *s, size_t start, size_t end, bool *result,
                               ag_error *err) {
    bool word_before = false, word_after = false;
    if (start > 0) {
        size_t last = ag_utf8_last(s->text, start);
        AG_TRY(is_word(s->set, s->text + last, start - last, &word_before, err));
    }
    if (end < s->len) {
        AG_TRY(is_word(s->set, s->text + end, ag_utf8_len(s->text[end]), &word_after, err));
    }
    *result = !word_before && !word_after;
    return AG_OK;
}

static size_t skip_space_back(const char *text, size_t at, size_t min) {
    while (at > min) {
        uint32_t cp;
        size_t last = ag_utf8_last(text, at);
        ag_utf8_get(text + last, &cp);
        if (!ag_is_white_space(cp)) break;
        at = last;
    }
    return at;
}

static size_t skip_space(const char *text, size_t at, size_t len) {
    while (at < len) {
        uint32_t cp;
        size_t n = ag_utf8_get(text + at, &cp);
        if (!ag_is_white_space(cp)) break;
        at += n;
    }
    return at;
}

ag_status ag_added_next(ag_added_scan *s, size_t *start, int32_t *id, ag_error *err) {
    *id = -1;
    if (s->set->n == 0) s->next = s->len;
    for (size_t step = 0; s->next < s->len; step++) {
        if (ag_interrupted_at(step))
            return AG_FAIL(err, CANCELLED, "finding added tokens: interrupted");
        const ag_added_token *t = longest_at(s->set, s->text + s->next, s->len - s->next);
        if (!t) {
            s->next++;
            continue;
        }
        size_t from = s->next, to = from + t->len;
        s->next = to;
        if (t->special && !s->parse_special) continue;
        bool alone = true;
        if (t->single_word) AG_TRY(is_whole_word(s, from, to, &alone, err));
        if (!alone) continue;
        if (t->rstrip) to = skip_space(s->text, to, s->len);
        if (t->lstrip) from = from > s->done ? skip_space_back(s->text, from, s->done) : s->done;
        size_t done = s->done;
        s->done = to;
        /* a token of spaces that the previous token has stripped */
        if (from >= to) continue;
        *start = from > done ? from : done;
        *id = t->id;
        break;
    }
    return AG_OK;
}
