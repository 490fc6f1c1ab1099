/* SPDX-License-Identifier: Apache-2.0 */
/* Detects how turns end, and what delimits reasoning and content. */
#include "chat/detect/detect.h"
#include "chat/detect/probe.h"
#include "chat/json_scan.h"
#include "chat/template/special_text.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

/* ---- delimiters in text ---- */

static size_t special_text_len(const ag_chat_format *f, const char *s) {
    const ag_special_text *m = ag_special_text_longest(f, s, strlen(s), true);
    return m ? m->len : 0;
}

size_t ag_detect_delimiter_len(const ag_chat_format *f, const char *s, size_t *space) {
    *space = 0;
    while (ag_is_json_space(s[*space])) ++*space;
    s += *space;
    size_t n = special_text_len(f, s);
    if (n) return n;
    const size_t line = strcspn(s, "\n");
    const char *end = *s == '<' ? memchr(s, '>', line) : *s == '[' ? memchr(s, ']', line) : NULL;
    if (end) return (size_t)(end - s) + 1;
    n = line;
    while (n && ag_is_json_space(s[n - 1])) n--;
    return n;
}

ag_status ag_detect_add_stop(ag_chat_format *f, const char *s, size_t n, ag_error *err) {
    for (size_t i = 0; i < f->n_stops; i++) {
        if (strlen(f->stops[i]) == n && !memcmp(f->stops[i], s, n)) return AG_OK;
    }
    if (n == 0 || f->n_stops == AG_CHAT_STOPS) return AG_OK;
    char *stop = ag_strndup(s, n);
    if (!stop) return AG_FAIL(err, NOMEM, "stop texts");
    f->stops[f->n_stops++] = stop;
    const int32_t id = f->tokenizer ? ag_tokenizer_id(f->tokenizer, s, n) : -1;
    if (id >= 0) f->stop_ids[f->n_stop_ids++] = id;
    return AG_OK;
}

/* ---- probes ---- */

static json_t *answer_message(void) { return ag_probe_message("assistant", AG_PROBE_ANSWER); }

static json_t *reasoned(const ag_chat_format *f) {
    json_t *m = answer_message();
    if (m && f->reasoning_key) json_object_set_new(m, f->reasoning_key, json_string("Q7vz"));
    return m;
}

typedef struct tails {
    char *prompt;                    /* a question, with the generation prompt */
    char *answered;                  /* a question and an answer */
    char *continued;                 /* a question, an answer and a question */
    char *reasoned;                  /* a question, and an answer with reasoning */
    char *called;                    /* a question, and an answer with a call */
    char *bare_call, *reasoned_call; /* a call without content, and after reasoning */
} tails;

static ag_status call_tail(const ag_chat_format *f, const char *content, bool with_reasoning,
                           char **tail, ag_error *err) {
    json_t *call =
        ag_probe_call(AG_PROBE_TOOL, "q7v000001", false, !(f->features & AG_CHAT_ARGUMENT_OBJECTS));
    json_t *messages = ag_probe_calls(json_pack("[o]", call), json_string(content));
    if (messages && with_reasoning) {
        json_t *m = json_array_get(messages, 1);
        json_object_set_new(m, f->reasoning_key, json_string("Q7vz"));
    }
    json_t *tools = f->features & AG_CHAT_TOOLS ? ag_probe_tools() : NULL;
    return ag_probe_tail(f, messages, tools, false, tail, err);
}

static ag_status render_tails(const ag_chat_format *f, tails *t, ag_error *err) {
    AG_TRY(ag_probe_tail(f, json_pack("[o]", ag_probe_question()), NULL, true, &t->prompt, err));
    AG_TRY(ag_probe_tail(f, json_pack("[o, o]", ag_probe_question(), answer_message()), NULL, false,
                         &t->answered, err));
    AG_TRY(ag_probe_tail(f,
                         json_pack("[o, o, o]", ag_probe_question(), answer_message(),
                                   ag_probe_message("user", "Q7vu")),
                         NULL, true, &t->continued, err));
    if (f->reasoning_key) {
        AG_TRY(ag_probe_tail(f, json_pack("[o, o]", ag_probe_question(), reasoned(f)), NULL, false,
                             &t->reasoned, err));
    }
    if (!(f->features & AG_CHAT_CALLS)) return AG_OK;
    AG_TRY(call_tail(f, AG_PROBE_ANSWER, false, &t->called, err));
    if (!f->reasoning_key) return AG_OK;
    AG_TRY(call_tail(f, "", false, &t->bare_call, err));
    return call_tail(f, "", true, &t->reasoned_call, err);
}

static void free_tails(tails *t) {
    ag_free(t->prompt);
    ag_free(t->answered);
    ag_free(t->continued);
    ag_free(t->reasoned);
    ag_free(t->called);
    ag_free(t->bare_call);
    ag_free(t->reasoned_call);
}

/* ---- the end of a turn ---- */

/* Returns the position after `text` in s; NULL if s is NULL or has none. */
static const char *after_text(const char *s, const char *text) {
    const char *at = s ? strstr(s, text) : NULL;
    return at ? at + strlen(text) : NULL;
}

/* Returns whether s[0..n) occurs in [from, to). */
static bool occurs_between(const char *from, const char *to, const char *s, size_t n) {
    for (; from && to && from + n <= to; from++) {
        if (!memcmp(from, s, n)) return true;
    }
    return false;
}

/* Returns whether the delimiter is inside a turn: between reasoning and content, or content and
 * call. */
static bool is_inside(const tails *t, const char *delimiter, size_t n) {
    const char *z = after_text(t->reasoned, "Q7vz"), *x = after_text(t->called, AG_PROBE_ANSWER);
    return occurs_between(z, z ? strstr(z, AG_PROBE_ANSWER) : NULL, delimiter, n) ||
           occurs_between(x, x ? strstr(x, AG_PROBE_TOOL) : NULL, delimiter, n);
}

/* Takes the delimiter at the start of `rest` for the end of a turn and for a stop, unless it is
 * inside turns. */
static ag_status detect_end(ag_chat_format *f, const tails *t, const char *rest, ag_error *err) {
    size_t space;
    const size_t n = rest ? ag_detect_delimiter_len(f, rest, &space) : 0;
    if (n == 0) return AG_OK;
    const char *delimiter = rest + space;
    /* A line of text ends a turn only with the white space before it. */
    const bool is_plain =
        *delimiter != '<' && *delimiter != '[' && special_text_len(f, delimiter) == 0;
    if (!f->turn_end && !is_inside(t, delimiter, n)) {
        f->turn_end = is_plain ? ag_strndup(rest, space + n) : ag_strndup(delimiter, n);
        if (!f->turn_end) return AG_FAIL(err, NOMEM, "end of turn");
    }
    if (is_inside(t, delimiter, n)) return AG_OK;
    return is_plain ? space ? ag_detect_add_stop(f, rest, space + n, err) : AG_OK
                    : ag_detect_add_stop(f, delimiter, n, err);
}

static ag_status detect_ends(ag_chat_format *f, const tails *t, ag_error *err) {
    const char *last = after_text(t->answered, AG_PROBE_ANSWER);
    char *between = NULL;
    const char *from = after_text(t->continued, AG_PROBE_ANSWER),
               *to = from ? strstr(from, "Q7vu") : NULL;
    if (to && !(between = ag_strndup(from, (size_t)(to - from)))) {
        return AG_FAIL(err, NOMEM, "end of turn");
    }
    ag_status st = detect_end(f, t, between, err);
    if (st == AG_OK) st = detect_end(f, t, last, err);
    ag_free(between);
    return st;
}

/* ---- reasoning ---- */

size_t ag_detect_common_prefix(const char *a, const char *b) {
    size_t n = 0, i;
    while (a[n] && a[n] == b[n]) n++;
    for (i = n; i && a[i - 1] != '>' && a[i - 1] != '<'; i--) {}
    return i && a[i - 1] == '<' ? i - 1 : n;
}

/* Returns the tag that ends at s[*n], white space ignored, and sets *n to its length; NULL if none
 * does. */
static const char *tag_before(const char *s, size_t *n) {
    while (*n && ag_is_json_space(s[*n - 1])) --*n;
    const char close = *n ? s[*n - 1] : '\0', open = close == '>' ? '<' : '[';
    if (close != '>' && close != ']') return NULL;
    size_t i = *n - 1;
    while (i && s[i] != open) i--;
    if (s[i] != open) return NULL;
    *n -= i;
    return s + i;
}

static char *trimmed_copy(const char *s, size_t n) {
    ag_json_trim(&s, &n);
    return ag_strndup(s, n);
}

/* Returns the text that opens the reasoning at s[n]: a tag that an answer without reasoning
 * (`other`) does not have there, else other text, else what only the prompt has. "" if there is
 * none; NULL if out of memory. The caller frees it. */
static char *reasoning_opening(const tails *t, const char *s, size_t n, const char *other) {
    const size_t same = other ? ag_detect_common_prefix(s, other) : 0;
    size_t len = n;
    const char *tag = tag_before(s, &len);
    const bool is_header = same >= n && !strncmp(other + n, AG_PROBE_ANSWER, 4);
    if (is_header) {
        const char *more = t->prompt && !strncmp(t->prompt, s, n) ? t->prompt + n : "";
        return trimmed_copy(more, strlen(more));
    }
    /* A tag that also comes before a content counts only with the text before it. */
    const char *x = t->answered ? strstr(t->answered, AG_PROBE_ANSWER) : NULL;
    size_t n_x = x ? (size_t)(x - t->answered) : 0;
    const char *before = x ? tag_before(t->answered, &n_x) : NULL;
    const bool is_shared = tag && before && n_x == len && !memcmp(before, tag, len);
    if (is_shared && t->prompt && !strncmp(s, t->prompt, strlen(t->prompt))) {
        return trimmed_copy(s + strlen(t->prompt), n - strlen(t->prompt));
    }
    if (tag) return ag_strndup(tag, len);
    return same < n ? trimmed_copy(s + same, n - same) : ag_strdup("");
}

static bool ends_with(const char *s, const char *delimiter) {
    size_t n = s ? strlen(s) : 0;
    const size_t len = delimiter ? strlen(delimiter) : 0;
    while (n && ag_is_json_space(s[n - 1])) n--;
    return len && n >= len && !memcmp(s + n - len, delimiter, len);
}

static ag_status set_reasoning(ag_chat_format *f, char *open, char *close, ag_error *err) {
    f->reasoning_open = open;
    f->reasoning_close = close;
    return open && close ? AG_OK : AG_FAIL(err, NOMEM, "delimiters of reasoning");
}

ag_status ag_detect_reasoning_by_text(ag_chat_format *f, const char *jinja, ag_error *err) {
    static const char *const pairs[][2] = {
        {"<think>", "</think>"},
        {"[THINK]", "[/THINK]"},
        {"<|START_THINKING|>", "<|END_THINKING|>"},
        {"<seed:think>", "</seed:think>"},
    };
    size_t best = 0;
    for (size_t i = sizeof pairs / sizeof *pairs; i-- > 0;) {
        if (strstr(jinja, pairs[i][0])) best = i;
    }
    return set_reasoning(f, ag_strdup(pairs[best][0]), ag_strdup(pairs[best][1]), err);
}

/* Sets the delimiters of reasoning from a rendered text whose reasoning `next` follows. */
static ag_status detect_reasoning_in(ag_chat_format *f, const tails *t, const char *text,
                                     const char *other, const char *next, ag_error *err) {
    const char *z = after_text(text, "Q7vz"), *x = z ? strstr(z, next) : NULL;
    size_t space = 0, n = z ? ag_detect_delimiter_len(f, z, &space) : 0;
    if (!x || n == 0 || z + space + n > x) return AG_OK;
    char *open = reasoning_opening(t, text, (size_t)(z - text) - strlen("Q7vz"), other);
    if (!open || *open) return set_reasoning(f, open, ag_strndup(z + space, n), err);
    ag_free(open);
    return AG_OK;
}

static ag_status detect_reasoning(ag_chat_format *f, const tails *t, const char *jinja,
                                  ag_error *err) {
    AG_TRY(detect_reasoning_in(f, t, t->reasoned, t->answered, AG_PROBE_ANSWER, err));
    if (f->reasoning_open) return AG_OK;
    AG_TRY(detect_reasoning_in(f, t, t->reasoned_call, t->bare_call, AG_PROBE_TOOL, err));
    return f->reasoning_open ? AG_OK : ag_detect_reasoning_by_text(f, jinja, err);
}

/* Sets content_open: a tag before the content that the prompt does not have and that does not end
 * the reasoning. */
static ag_status detect_content(ag_chat_format *f, const tails *t, ag_error *err) {
    const char *x = t->answered ? strstr(t->answered, AG_PROBE_ANSWER) : NULL;
    size_t n = x ? (size_t)(x - t->answered) : 0;
    const char *tag = x && t->prompt ? tag_before(t->answered, &n) : NULL;
    if (!tag || (strlen(f->reasoning_close) == n && !memcmp(tag, f->reasoning_close, n)))
        return AG_OK;
    f->content_open = ag_strndup(tag, n);
    if (!f->content_open) return AG_FAIL(err, NOMEM, "delimiters of content");
    if (strstr(t->prompt, f->content_open)) {
        ag_free(f->content_open);
        f->content_open = NULL;
    }
    return AG_OK;
}

ag_status ag_detect_delimiters(ag_chat_format *f, const char *jinja, ag_error *err) {
    tails t = {0};
    ag_status st = render_tails(f, &t, err);
    if (st == AG_OK) st = detect_ends(f, &t, err);
    if (st == AG_OK) st = detect_reasoning(f, &t, jinja, err);
    if (st == AG_OK) st = detect_content(f, &t, err);
    if (st == AG_OK && ends_with(t.prompt, f->reasoning_open)) {
        f->features |= AG_CHAT_OPENS_REASONING;
    }
    free_tails(&t);
    return st;
}
