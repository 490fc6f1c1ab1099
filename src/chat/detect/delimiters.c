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

typedef enum probe_id {
    PROMPT,        /* a question, with the generation prompt */
    ANSWERED,      /* a question and an answer */
    CONTINUED,     /* a question, an answer and a question */
    REASONED,      /* a question, and an answer with reasoning */
    CALLED,        /* a question, and an answer with a call */
    BARE_CALL,     /* a call without content */
    REASONED_CALL, /* a call without content, after reasoning */
    N_TAILS
} probe_id;

/* Tails of the probes, [N_TAILS]: the output after the first question. NULL: not rendered. */
typedef struct tails {
    char *s[N_TAILS];
} tails;

static ag_status render_tail(const ag_chat_format *f, json_t *messages, bool with_tools,
                             probe_id id, tails *t, ag_error *err) {
    json_t *tools = with_tools && f->features & AG_CHAT_TOOLS ? ag_probe_tools() : NULL;
    const bool prompt = id == PROMPT || id == CONTINUED;
    return ag_probe_tail(f, messages, tools, prompt, &t->s[id], err);
}

static json_t *call_with(const ag_chat_format *f, const char *content) {
    const bool as_text = !(f->features & AG_CHAT_ARGUMENT_OBJECTS);
    json_t *call = ag_probe_call(AG_PROBE_TOOL, AG_PROBE_ID, false, as_text);
    return ag_probe_calls(json_pack("[o]", call), json_string(content));
}

static ag_status render_tails(const ag_chat_format *f, tails *t, ag_error *err) {
    const char *key = f->reasoning_key;
    AG_TRY(render_tail(f, json_pack("[o]", ag_probe_question()), false, PROMPT, t, err));
    AG_TRY(render_tail(f, ag_probe_answered(), false, ANSWERED, t, err));
    json_t *messages = ag_probe_answered();
    if (messages) json_array_append_new(messages, ag_probe_message("user", "Q7vu"));
    AG_TRY(render_tail(f, messages, false, CONTINUED, t, err));
    if (key) {
        messages = ag_probe_answered();
        ag_probe_set_reasoning(messages, key);
        AG_TRY(render_tail(f, messages, false, REASONED, t, err));
    }
    if (!(f->features & AG_CHAT_CALLS)) return AG_OK;
    AG_TRY(render_tail(f, call_with(f, AG_PROBE_ANSWER), true, CALLED, t, err));
    if (!key) return AG_OK;
    AG_TRY(render_tail(f, call_with(f, ""), true, BARE_CALL, t, err));
    messages = call_with(f, "");
    ag_probe_set_reasoning(messages, key);
    return render_tail(f, messages, true, REASONED_CALL, t, err);
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
    const char *reasoning_end = after_text(t->s[REASONED], AG_PROBE_REASONING),
               *content_end = after_text(t->s[CALLED], AG_PROBE_ANSWER);
    const char *content = reasoning_end ? strstr(reasoning_end, AG_PROBE_ANSWER) : NULL,
               *call = content_end ? strstr(content_end, AG_PROBE_TOOL) : NULL;
    return occurs_between(reasoning_end, content, delimiter, n) ||
           occurs_between(content_end, call, delimiter, n);
}

/* Takes the delimiter at the start of `rest` for the end of a turn and for a stop, unless it is
 * inside turns. */
static ag_status detect_end(ag_chat_format *f, const tails *t, const char *rest, ag_error *err) {
    size_t space;
    size_t n = rest ? ag_detect_delimiter_len(f, rest, &space) : 0;
    if (n == 0 || is_inside(t, rest + space, n)) return AG_OK;
    const char *end = rest + space;
    /* A line of text ends a turn only with the white space before it. */
    const bool is_plain = *end != '<' && *end != '[' && special_text_len(f, end) == 0;
    if (is_plain) {
        end = rest;
        n += space;
    }
    if (!f->turn_end && !(f->turn_end = ag_strndup(end, n))) {
        return AG_FAIL(err, NOMEM, "end of turn");
    }
    return is_plain && !space ? AG_OK : ag_detect_add_stop(f, end, n, err);
}

static ag_status detect_ends(ag_chat_format *f, const tails *t, ag_error *err) {
    const char *last = after_text(t->s[ANSWERED], AG_PROBE_ANSWER);
    char *between = NULL;
    const char *from = after_text(t->s[CONTINUED], AG_PROBE_ANSWER),
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

/* Returns the tag <...> or [...] at the end of s[0..*n), ignoring white space after it, and sets *n
 * to its length. Returns NULL if there is none; *n is then undefined. */
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
        const char *more = t->s[PROMPT] && !strncmp(t->s[PROMPT], s, n) ? t->s[PROMPT] + n : "";
        return trimmed_copy(more, strlen(more));
    }
    /* A tag that also comes before a content counts only with the text before it. */
    const char *content = t->s[ANSWERED] ? strstr(t->s[ANSWERED], AG_PROBE_ANSWER) : NULL;
    size_t n_before = content ? (size_t)(content - t->s[ANSWERED]) : 0;
    const char *before = content ? tag_before(t->s[ANSWERED], &n_before) : NULL;
    const bool is_shared = tag && before && n_before == len && !memcmp(before, tag, len);
    if (is_shared && t->s[PROMPT] && !strncmp(s, t->s[PROMPT], strlen(t->s[PROMPT]))) {
        return trimmed_copy(s + strlen(t->s[PROMPT]), n - strlen(t->s[PROMPT]));
    }
    if (tag) return ag_strndup(tag, len);
    return same < n ? trimmed_copy(s + same, n - same) : ag_strdup("");
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
    const char *rest = after_text(text, AG_PROBE_REASONING),
               *end = rest ? strstr(rest, next) : NULL;
    size_t space = 0, n = rest ? ag_detect_delimiter_len(f, rest, &space) : 0;
    if (!end || n == 0 || rest + space + n > end) return AG_OK;
    char *open =
        reasoning_opening(t, text, (size_t)(rest - text) - strlen(AG_PROBE_REASONING), other);
    if (!open || *open) return set_reasoning(f, open, ag_strndup(rest + space, n), err);
    ag_free(open);
    return AG_OK;
}

static ag_status detect_reasoning(ag_chat_format *f, const tails *t, const char *jinja,
                                  ag_error *err) {
    AG_TRY(detect_reasoning_in(f, t, t->s[REASONED], t->s[ANSWERED], AG_PROBE_ANSWER, err));
    if (f->reasoning_open) return AG_OK;
    AG_TRY(detect_reasoning_in(f, t, t->s[REASONED_CALL], t->s[BARE_CALL], AG_PROBE_TOOL, err));
    return f->reasoning_open ? AG_OK : ag_detect_reasoning_by_text(f, jinja, err);
}

/* Sets content_open: a tag before the content that the prompt does not have and that does not end
 * the reasoning. */
static ag_status detect_content(ag_chat_format *f, const tails *t, ag_error *err) {
    const char *content = t->s[ANSWERED] ? strstr(t->s[ANSWERED], AG_PROBE_ANSWER) : NULL;
    size_t n = content ? (size_t)(content - t->s[ANSWERED]) : 0;
    const char *tag = content && t->s[PROMPT] ? tag_before(t->s[ANSWERED], &n) : NULL;
    if (!tag || (strlen(f->reasoning_close) == n && !memcmp(tag, f->reasoning_close, n)))
        return AG_OK;
    f->content_open = ag_strndup(tag, n);
    if (!f->content_open) return AG_FAIL(err, NOMEM, "delimiters of content");
    if (strstr(t->s[PROMPT], f->content_open)) {
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
    if (st == AG_OK && t.s[PROMPT] &&
        ag_chat_format_ends_in_reasoning(f, t.s[PROMPT], strlen(t.s[PROMPT]))) {
        f->features |= AG_CHAT_OPENS_REASONING;
    }
    for (size_t i = 0; i < N_TAILS; i++) ag_free(t.s[i]);
    return st;
}
