/* SPDX-License-Identifier: Apache-2.0 */
/* str methods that search, split, strip, replace and join. */
#include "jinja/builtins/arguments.h"
#include "jinja/builtins/methods.h"
#include "jinja/value/list.h"
#include "jinja/value/ops.h"
#include "jinja/value/string.h"
#include "jinja/value/unicode.h"
#include "text/utf8.h"

#include <string.h>

/* Returns the argument as a string, NULL with the error recorded if it is none. */
static ag_jstr *text_argument(ag_jctx *c, ag_jv v) {
    if (v.kind == AG_JSTRING) return v.as.string;
    if (v.kind == AG_JUNDEFINED) ag_jfail_undefined(c, v);
    else ag_jfail(c, "a string is needed, not '%s'", ag_jtype_name(v));
    return NULL;
}

static bool given(ag_jv v) { return v.kind != AG_JFAIL && v.kind != AG_JNONE; }

/* Returns s, as markup if `like` is. */
static ag_jv with_markup_of(ag_jctx *c, const ag_jstr *like, ag_jstr *s) {
    return ag_jstring(s && like->markup ? ag_jstr_as_markup(c, s, true) : s);
}

static bool is_char_of(const ag_jstr *set, const char *ch, size_t n) {
    for (size_t i = 0; i < set->len; i += ag_utf8_len(set->text[i])) {
        if (ag_utf8_len(set->text[i]) == n && !memcmp(set->text + i, ch, n)) return true;
    }
    return false;
}

static bool strips(const ag_jstr *chars, const char *ch, size_t n) {
    if (chars) return is_char_of(chars, ch, n);
    uint32_t cp;
    ag_utf8_get(ch, &cp);
    return ag_jchar_is_space(cp);
}

static ag_jstr *stripped(ag_jctx *c, ag_jstr *s, const ag_jstr *chars, bool left, bool right) {
    size_t begin = 0, end = s->len, cost = chars ? chars->len / 8 + 1 : 1;
    while (left && begin < end) {
        size_t n = ag_utf8_len(s->text[begin]);
        if (!ag_jwork(c, cost)) return NULL;
        if (!strips(chars, s->text + begin, n)) break;
        begin += n;
    }
    while (right && end > begin) {
        size_t last = ag_utf8_last(s->text, end);
        if (!ag_jwork(c, cost)) return NULL;
        if (!strips(chars, s->text + last, end - last)) break;
        end = last;
    }
    return begin == 0 && end == s->len ? s : ag_jstr_slice(c, s, begin, end);
}

static ag_jv strip_with(ag_jctx *c, ag_jv self, ag_jv chars, bool left, bool right) {
    const ag_jstr *set = given(chars) ? text_argument(c, chars) : NULL;
    if (c->status != AG_OK) return ag_jfail_value();
    return ag_jstring(stripped(c, self.as.string, set, left, right));
}

ag_jv ag_jstr_strip(ag_jctx *c, ag_jv self, const ag_jv *a) {
    return strip_with(c, self, a[0], true, true);
}
ag_jv ag_jstr_lstrip(ag_jctx *c, ag_jv self, const ag_jv *a) {
    return strip_with(c, self, a[0], true, false);
}
ag_jv ag_jstr_rstrip(ag_jctx *c, ag_jv self, const ag_jv *a) {
    return strip_with(c, self, a[0], false, true);
}

/* Computes the byte range of s[start:end]. Sets *empty if start is after the end. Returns false on
 * failure. */
static bool byte_range(ag_jctx *c, ag_jstr *s, ag_jv from, ag_jv to, size_t *begin, size_t *end,
                       bool *empty) {
    int64_t i, j;
    if (from.kind == AG_JNONE) from = ag_jfail_value();
    if (to.kind == AG_JNONE) to = ag_jfail_value();
    if (ag_jfailed(from) && ag_jfailed(to)) { /* avoids counting characters */
        *begin = 0;
        *end = s->len;
        *empty = false;
        return true;
    }
    const int64_t n = (int64_t)ag_jstr_chars(s);
    if (!ag_jargument_int(c, from, 0, &i) || !ag_jargument_int(c, to, n, &j)) return false;
    if (i < 0) i = i + n < 0 ? 0 : i + n;
    if (j < 0) j = j + n < 0 ? 0 : j + n;
    if (j > n) j = n;
    *empty = i > n || i > j;
    if (i > n) i = n;
    *begin = ag_jstr_offset(s, (size_t)i);
    *end = *empty ? *begin : ag_jstr_offset(s, (size_t)j);
    return true;
}

static ag_jv find_with(ag_jctx *c, ag_jv self, const ag_jv *a, bool required) {
    ag_jstr *s = self.as.string, *needle = text_argument(c, a[0]);
    size_t begin, end;
    bool empty;
    if (!needle || !byte_range(c, s, a[1], a[2], &begin, &end, &empty)) return ag_jfail_value();
    if (!ag_jwork_search(c, s->len)) return ag_jfail_value();
    int64_t at = empty ? AG_JNOT_FOUND : ag_jstr_find(s, begin, end, needle);
    if (at == AG_JNOT_FOUND) return required ? ag_jfail(c, "substring not found") : ag_jint(-1);
    return ag_jint(ag_jstr_is_ascii(s) ? at : (int64_t)ag_jstr_count(s->text, (size_t)at));
}

ag_jv ag_jstr_find_in(ag_jctx *c, ag_jv self, const ag_jv *a) {
    return find_with(c, self, a, false);
}
ag_jv ag_jstr_index_in(ag_jctx *c, ag_jv self, const ag_jv *a) {
    return find_with(c, self, a, true);
}
ag_jv ag_jstr_count_of(ag_jctx *c, ag_jv self, const ag_jv *a) {
    ag_jstr *s = self.as.string, *needle = text_argument(c, a[0]);
    size_t begin, end;
    bool empty;
    if (!needle || !byte_range(c, s, a[1], a[2], &begin, &end, &empty)) return ag_jfail_value();
    if (!ag_jwork_search(c, s->len)) return ag_jfail_value();
    if (empty) return ag_jint(0);
    if (!needle->len) return ag_jint((int64_t)ag_jstr_count(s->text + begin, end - begin) + 1);
    int64_t n = 0;
    for (;; n++) {
        int64_t at = ag_jstr_find(s, begin, end, needle);
        if (at == AG_JNOT_FOUND) return ag_jint(n);
        if (!ag_jwork(c, 1)) return ag_jfail_value();
        begin = (size_t)at + needle->len;
    }
}

static ag_jv affix(ag_jctx *c, ag_jv self, const ag_jv *a, bool at_end) {
    ag_jstr *s = self.as.string;
    size_t begin, end;
    bool empty;
    if (!byte_range(c, s, a[1], a[2], &begin, &end, &empty)) return ag_jfail_value();
    const ag_jv *affixes = a[0].kind == AG_JTUPLE ? a[0].as.list->items : a;
    size_t n = a[0].kind == AG_JTUPLE ? a[0].as.list->n : 1;
    for (size_t i = 0; i < n; i++) {
        const ag_jstr *needle = text_argument(c, affixes[i]);
        if (!needle || !ag_jwork_bytes(c, needle->len)) return ag_jfail_value();
        if (empty || needle->len > end - begin) continue;
        const char *p = at_end ? s->text + end - needle->len : s->text + begin;
        if (!memcmp(p, needle->text, needle->len)) return ag_jbool(true);
    }
    return ag_jbool(false);
}

ag_jv ag_jstr_startswith(ag_jctx *c, ag_jv self, const ag_jv *a) {
    return affix(c, self, a, false);
}
ag_jv ag_jstr_endswith(ag_jctx *c, ag_jv self, const ag_jv *a) { return affix(c, self, a, true); }

/* Inserts `to` before each character and at the end, at most `limit` times: replace with an empty
 * `from`. */
static bool replace_nothing(ag_jctx *c, ag_jbuf *b, ag_jstr *s, const ag_jstr *to, int64_t limit) {
    size_t at = 0;
    while (at < s->len && limit != 0) {
        size_t n = ag_utf8_len(s->text[at]);
        if (!ag_jwork(c, 1) || !ag_jbuf_append(c, b, to) ||
            !ag_jbuf_append_slice(c, b, s, at, at + n)) {
            return false;
        }
        at += n;
        limit--;
    }
    if (limit != 0) return ag_jbuf_append(c, b, to);
    return ag_jbuf_append_slice(c, b, s, at, s->len);
}

ag_jstr *ag_jstr_replaced(ag_jctx *c, ag_jstr *s, const ag_jstr *from, const ag_jstr *to,
                          int64_t limit) {
    if (!ag_jwork_search(c, s->len)) return NULL;
    int64_t next = limit == 0 ? AG_JNOT_FOUND : ag_jstr_find(s, 0, s->len, from);
    if (next == AG_JNOT_FOUND) return s;
    ag_jbuf *b = ag_jbuf_create(c);
    if (!b) return NULL;
    if (!from->len) return replace_nothing(c, b, s, to, limit) ? ag_jbuf_string(c, b) : NULL;
    size_t at = 0;
    while (next != AG_JNOT_FOUND && limit != 0) {
        if (!ag_jwork(c, 1) || !ag_jbuf_append_slice(c, b, s, at, (size_t)next) ||
            !ag_jbuf_append(c, b, to)) {
            return NULL;
        }
        at = (size_t)next + from->len;
        next = ag_jstr_find(s, at, s->len, from);
        limit--;
    }
    return ag_jbuf_append_slice(c, b, s, at, s->len) ? ag_jbuf_string(c, b) : NULL;
}

ag_jv ag_jstr_replace(ag_jctx *c, ag_jv self, const ag_jv *a) {
    ag_jstr *s = self.as.string, *from = text_argument(c, a[0]);
    ag_jstr *to = from ? text_argument(c, a[1]) : NULL;
    int64_t limit;
    if (!to || !ag_jargument_int(c, a[2], -1, &limit)) return ag_jfail_value();
    if (s->markup) to = ag_jescape(c, a[1]);
    return to ? with_markup_of(c, s, ag_jstr_replaced(c, s, from, to, limit)) : ag_jfail_value();
}

static bool push_slice(ag_jctx *c, ag_jlist *l, const ag_jstr *s, size_t begin, size_t end) {
    return ag_jwork(c, 1) && ag_jlist_push(c, l, ag_jstring(ag_jstr_slice(c, s, begin, end)));
}

static size_t skip_spaces_at(const ag_jstr *s, size_t at, bool spaces) {
    while (at < s->len) {
        uint32_t cp;
        size_t n = ag_utf8_get(s->text + at, &cp);
        if (ag_jchar_is_space(cp) != spaces) break;
        at += n;
    }
    return at;
}

static ag_jlist *split_words(ag_jctx *c, ag_jstr *s, int64_t limit) {
    ag_jlist *l = ag_jlist_create(c, 0);
    size_t at = l ? skip_spaces_at(s, 0, true) : 0;
    while (l && at < s->len) {
        size_t end = limit == 0 ? s->len : skip_spaces_at(s, at, false);
        if (!push_slice(c, l, s, at, end)) return NULL;
        limit--;
        at = skip_spaces_at(s, end, true);
    }
    return l;
}

static ag_jlist *split_at(ag_jctx *c, ag_jstr *s, const ag_jstr *sep, int64_t limit) {
    ag_jlist *l = ag_jlist_create(c, 0);
    size_t at = 0;
    while (l) {
        int64_t next = limit == 0 ? AG_JNOT_FOUND : ag_jstr_find(s, at, s->len, sep);
        size_t end = next == AG_JNOT_FOUND ? s->len : (size_t)next;
        if (!push_slice(c, l, s, at, end)) return NULL;
        if (next == AG_JNOT_FOUND) break;
        at = end + sep->len;
        limit--;
    }
    return l;
}

static void reverse_items(ag_jlist *l) {
    for (size_t i = 0, j = l->n; i + 1 < j; i++) {
        ag_jv v = l->items[i];
        l->items[i] = l->items[--j];
        l->items[j] = v;
    }
}

static ag_jlist *rsplit_at(ag_jctx *c, ag_jstr *s, const ag_jstr *sep, int64_t limit) {
    ag_jlist *l = ag_jlist_create(c, 0);
    size_t end = s->len;
    while (l) {
        int64_t at = limit == 0 ? AG_JNOT_FOUND : ag_jstr_rfind(c, s, 0, end, sep);
        if (c->status != AG_OK) return NULL;
        size_t begin = at == AG_JNOT_FOUND ? 0 : (size_t)at + sep->len;
        if (!push_slice(c, l, s, begin, end)) return NULL;
        if (at == AG_JNOT_FOUND) break;
        end = (size_t)at;
        limit--;
    }
    if (l) reverse_items(l);
    return l;
}

static ag_jlist *rsplit_words(ag_jctx *c, ag_jstr *s, int64_t limit) {
    ag_jlist *l = ag_jlist_create(c, 0);
    ag_jstr *head = l ? stripped(c, s, NULL, false, true) : NULL;
    while (head && head->len) {
        size_t begin = head->len;
        while (begin > 0 && limit != 0) {
            uint32_t cp;
            size_t last = ag_utf8_last(head->text, begin);
            ag_utf8_get(head->text + last, &cp);
            if (ag_jchar_is_space(cp)) break;
            begin = last;
        }
        if (limit == 0) {
            if (!ag_jlist_push(c, l, ag_jstring(head))) return NULL;
            break;
        }
        if (!push_slice(c, l, head, begin, head->len)) return NULL;
        head = ag_jstr_slice(c, head, 0, begin);
        head = head ? stripped(c, head, NULL, false, true) : NULL;
        limit--;
    }
    if (!head) return NULL;
    reverse_items(l);
    return l;
}

static ag_jv split_with(ag_jctx *c, ag_jv self, const ag_jv *a, bool from_right) {
    ag_jstr *s = self.as.string;
    const ag_jstr *sep = given(a[0]) ? text_argument(c, a[0]) : NULL;
    int64_t limit;
    if (c->status != AG_OK || !ag_jargument_int(c, a[1], -1, &limit) ||
        !ag_jwork_search(c, s->len)) {
        return ag_jfail_value();
    }
    if (sep && !sep->len) return ag_jfail(c, "empty separator");
    if (!sep) {
        return ag_jlist_value(from_right ? rsplit_words(c, s, limit) : split_words(c, s, limit));
    }
    return ag_jlist_value(from_right ? rsplit_at(c, s, sep, limit) : split_at(c, s, sep, limit));
}

ag_jv ag_jstr_split(ag_jctx *c, ag_jv self, const ag_jv *a) {
    return split_with(c, self, a, false);
}
ag_jv ag_jstr_rsplit(ag_jctx *c, ag_jv self, const ag_jv *a) {
    return split_with(c, self, a, true);
}

ag_jv ag_jstr_splitlines(ag_jctx *c, ag_jv self, const ag_jv *a) {
    const ag_jstr *s = self.as.string;
    int64_t keep_ends;
    if (!ag_jargument_int(c, a[0], 0, &keep_ends)) return ag_jfail_value();
    ag_jlist *l = ag_jlist_create(c, 0);
    size_t begin = 0;
    if (!l || !ag_jwork_bytes(c, s->len)) return ag_jfail_value();
    for (size_t at = 0; at < s->len;) {
        uint32_t cp;
        size_t n = ag_utf8_get(s->text + at, &cp), end = at + n;
        if (ag_jchar_is_line_end(cp)) {
            if (cp == '\r' && end < s->len && s->text[end] == '\n') end++;
            if (!push_slice(c, l, s, begin, keep_ends ? end : at)) return ag_jfail_value();
            begin = end;
        }
        at = end;
    }
    if (begin < s->len && !push_slice(c, l, s, begin, s->len)) return ag_jfail_value();
    return ag_jlist_value(l);
}

ag_jv ag_jstr_partition(ag_jctx *c, ag_jv self, const ag_jv *a) {
    ag_jstr *s = self.as.string, *sep = text_argument(c, a[0]);
    if (!sep || !ag_jwork_search(c, s->len)) return ag_jfail_value();
    if (!sep->len) return ag_jfail(c, "empty separator");
    int64_t at = ag_jstr_find(s, 0, s->len, sep);
    size_t begin = at == AG_JNOT_FOUND ? s->len : (size_t)at;
    size_t end = at == AG_JNOT_FOUND ? s->len : begin + sep->len;
    ag_jlist *l = ag_jlist_create(c, 3);
    bool ok = l && push_slice(c, l, s, 0, begin) && push_slice(c, l, s, begin, end) &&
              push_slice(c, l, s, end, s->len);
    return ok ? ag_jtuple_value(l) : ag_jfail_value();
}

ag_jstr *ag_jstr_joined(ag_jctx *c, const ag_jstr *separator, const ag_jlist *parts) {
    ag_jbuf *b = ag_jbuf_create(c);
    for (size_t i = 0; b && i < parts->n; i++) {
        if (i && !ag_jbuf_append(c, b, separator)) return NULL;
        if (!ag_jwork(c, 1) || !ag_jbuf_append(c, b, parts->items[i].as.string)) return NULL;
    }
    return b ? ag_jbuf_string(c, b) : NULL;
}

ag_jv ag_jstr_join(ag_jctx *c, ag_jv self, const ag_jv *a) {
    ag_jlist *parts = ag_jlist_of(c, a[0]), *texts = parts ? ag_jlist_create(c, parts->n) : NULL;
    const ag_jstr *separator = self.as.string;
    for (size_t i = 0; texts && i < parts->n; i++) {
        ag_jv v = parts->items[i];
        if (v.kind != AG_JSTRING && !separator->markup) {
            return ag_jfail(c, "sequence item %zu: expected str instance, %s found", i,
                            ag_jtype_name(v));
        }
        if (separator->markup) v = ag_jstring(ag_jescape(c, v));
        if (!ag_jlist_push(c, texts, v)) return ag_jfail_value();
    }
    return texts ? with_markup_of(c, separator, ag_jstr_joined(c, separator, texts))
                 : ag_jfail_value();
}
