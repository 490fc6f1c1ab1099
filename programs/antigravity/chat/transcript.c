/* SPDX-License-Identifier: Apache-2.0 */
#include "transcript.h"

#include "../command.h"
#include "../model/prompt.h"
#include "../support/json_out.h"
#include "../terminal/output.h"

#include <stdlib.h>
#include <string.h>

/* Template for models without one: concatenated messages; each user message begins a line. */
static const char plain_template[] =
    "{{- bos_token -}}{%- for message in messages -%}"
    "{%- if not loop.first and message['role'] == 'user' -%}{{- '\\n' -}}{%- endif -%}"
    "{{- message['content'] -}}{%- endfor -%}";

const char *transcript_plain_template(void) { return plain_template; }

/* Contents of the messages that are rendered to find the first user turn. Some templates reject a
 * conversation without messages, or with the assistant's alone. */
#define SOME_USER "1"
#define SOME_ANSWER "2"

/* Opens the plain template with the tokenizer's BOS, if that is one token. */
static ag_status open_plainly(transcript *t, ag_error *err) {
    char bos[64];
    size_t len = 0;
    ag_ids ids = {0};
    ag_status st = ag_tokenizer_encode(t->tokenizer, "", 0, AG_ENCODE_BOS, &ids, err);
    const char *spelling = ids.n ? ag_tokenizer_token(t->tokenizer, ids.data[0], &len) : NULL;
    const bool known = spelling && len < sizeof bos;
    if (known) memcpy(bos, spelling, len);
    bos[known ? len : 0] = '\0';
    ag_ids_free(&ids);
    if (st != AG_OK) return st;
    return ag_chat_format_create(plain_template, sizeof plain_template - 1, known ? bos : NULL,
                                 NULL, t->tokenizer, &t->format, err);
}

int transcript_open(transcript *t, const char *dir, const ag_tokenizer *tokenizer,
                    const char *jinja) {
    ag_error err;
    *t = (transcript){.tokenizer = tokenizer, .has_template = true};
    ag_status st = ag_chat_format_load(dir, tokenizer, jinja, &t->format, &err);
    if (st == AG_NOT_FOUND && !jinja) {
        t->has_template = false;
        st = open_plainly(t, &err);
    }
    if (st == AG_OK) st = ag_chat_create(t->format, &t->chat, &err);
    return st == AG_OK ? EXIT_DONE : complain_error(&err);
}

static void release_message(transcript_message *m) {
    json_decref(m->json);
    free(m->ids.data);
}

void transcript_close(transcript *t) {
    if (t->chat) transcript_truncate(t, 0); /* NULL after a failed transcript_open() */
    free(t->messages);
    free(t->system);
    ag_chat_destroy(t->chat);
    ag_chat_format_destroy(t->format);
}

/* ---- messages ---- */

/* Returns the number of messages of t->chat that precede ours. */
static size_t n_before(const transcript *t) { return t->system != NULL; }

static int add_to_chat(transcript *t, const json_t *message) {
    ag_error err;
    char *text = json_dumps(message, JSON_COMPACT);
    if (!text) return complain_no_memory();
    ag_status st = ag_chat_add_json(t->chat, text, strlen(text), &err);
    free(text);
    return st == AG_OK ? EXIT_DONE : complain_error(&err);
}

static json_t *text_message(const char *role, const char *text) {
    return JSON_OBJECT({"role", json_string(role)}, {"content", json_text(text, strlen(text))});
}

static int add_text_to_chat(transcript *t, const char *role, const char *text) {
    json_t *message = text_message(role, text);
    int code = message ? add_to_chat(t, message) : complain_no_memory();
    json_decref(message);
    return code;
}

/* Adds messages [first, t->n) to t->chat, which holds those before. */
static int add_again(transcript *t, size_t first) {
    int code = EXIT_DONE;
    for (size_t i = first; i < t->n && code == EXIT_DONE; i++)
        code = add_to_chat(t, t->messages[i].json);
    return code;
}

int transcript_set_system(transcript *t, const char *text) {
    char *copy = text ? strdup(text) : NULL;
    if (text && !copy) return complain_no_memory();
    free(t->system);
    t->system = copy;
    ag_chat_truncate(t->chat, 0);
    int code = copy ? add_text_to_chat(t, "system", copy) : EXIT_DONE;
    return code == EXIT_DONE ? add_again(t, 0) : code;
}

/* Returns a new message, not counted yet. NULL after reporting that memory is short. */
static transcript_message *new_message(transcript *t) {
    if (t->n == t->cap) {
        const size_t cap = t->cap ? 2 * t->cap : 16;
        transcript_message *grown = realloc(t->messages, cap * sizeof *grown);
        if (!grown) complain_no_memory();
        if (!grown) return NULL;
        t->messages = grown;
        t->cap = cap;
    }
    t->messages[t->n] = (transcript_message){.first = TRANSCRIPT_UNREAD};
    return &t->messages[t->n];
}

int transcript_add_json(transcript *t, json_t *message) {
    transcript_message *m = message ? new_message(t) : NULL;
    int code = m ? add_to_chat(t, message) : EXIT_FAILED;
    if (code != EXIT_DONE) {
        json_decref(message);
        return code;
    }
    m->json = message;
    t->n++;
    return EXIT_DONE;
}

int transcript_add(transcript *t, const char *role, const char *text) {
    json_t *message = text_message(role, text);
    return message ? transcript_add_json(t, message) : complain_no_memory();
}

static bool copy_ids(ag_ids *to, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!ids_add(to, ids[i])) return false;
    return true;
}

/* Stores the parsed answer, which t->chat has already. */
static int store_answer(transcript *t, const ag_chat_parser *p, const int32_t *ids, size_t n) {
    ag_error err;
    ag_text json = {0};
    transcript_message *m = new_message(t);
    if (!m) return EXIT_FAILED;
    if (ag_chat_parser_message(p, &json, &err) != AG_OK) {
        ag_text_free(&json);
        return complain_error(&err);
    }
    m->json = json_loadb(json.data, json.len, 0, NULL);
    ag_text_free(&json);
    m->is_sampled = true;
    if (m->json && copy_ids(&m->ids, ids, n)) {
        t->n++;
        return EXIT_DONE;
    }
    release_message(m);
    return complain_no_memory();
}

int transcript_add_answer(transcript *t, const ag_chat_parser *p, const int32_t *ids, size_t n) {
    ag_error err;
    if (ag_chat_add_answer(t->chat, p, ids, n, &err) != AG_OK) return complain_error(&err);
    int code = store_answer(t, p, ids, n);
    if (code != EXIT_DONE) ag_chat_truncate(t->chat, n_before(t) + t->n);
    return code;
}

/* Parses the text of the ids, so that t->chat knows the ids of the message. */
static ag_status parse_again(transcript *t, const int32_t *ids, size_t n, ag_error *err) {
    ag_chat_parser *p = NULL;
    ag_text text = {0};
    ag_status st = ag_chat_parser_create(t->chat, &p, err);
    if (st == AG_OK) st = ag_tokenizer_decode(t->tokenizer, ids, n, true, &text, err);
    if (st == AG_OK && text.len) st = ag_chat_parser_push(p, text.data, text.len, err);
    if (st == AG_OK) st = ag_chat_parser_finish(p, err);
    if (st == AG_OK) st = ag_chat_add_answer(t->chat, p, ids, n, err);
    ag_text_free(&text);
    ag_chat_parser_destroy(p);
    return st;
}

int transcript_add_saved(transcript *t, json_t *message, const int32_t *ids, size_t n) {
    ag_error err;
    ag_ids unused = {0};
    transcript_message *m = new_message(t);
    /* The parser needs the start of the answer, which depends on the messages before it. */
    ag_status st = m ? ag_chat_render(t->chat, 0, &unused, NULL, &err) : AG_OK;
    ag_ids_free(&unused);
    if (m && st == AG_OK) st = parse_again(t, ids, n, &err);
    if (m && st != AG_OK) complain_error(&err);
    if (m && st == AG_OK && !copy_ids(&m->ids, ids, n)) {
        complain_no_memory();
        free(m->ids.data);
        st = AG_NOMEM;
    }
    if (!m || st != AG_OK) {
        json_decref(message);
        return EXIT_FAILED;
    }
    m->json = message;
    m->is_sampled = true;
    t->n++;
    return EXIT_DONE;
}

void transcript_truncate(transcript *t, size_t n) {
    while (t->n > n) release_message(&t->messages[--t->n]);
    ag_chat_truncate(t->chat, n_before(t) + n);
}

const char *transcript_role(const transcript *t, size_t i) {
    const char *role =
        i < t->n ? json_string_value(json_object_get(t->messages[i].json, "role")) : NULL;
    return role;
}

const char *transcript_content(const transcript *t, size_t i) {
    const char *text =
        i < t->n ? json_string_value(json_object_get(t->messages[i].json, "content")) : NULL;
    return text ? text : "";
}

static bool is_user(const transcript *t, size_t i) {
    const char *role = transcript_role(t, i);
    return role && !strcmp(role, "user");
}

size_t transcript_turn(const transcript *t, size_t i) {
    size_t at = 0;
    for (; at < t->n; at++)
        if (is_user(t, at) && !i--) break;
    return at;
}

size_t transcript_n_turns(const transcript *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) n += is_user(t, i);
    return n;
}

/* ---- tokens ---- */

int transcript_render(transcript *t, ag_ids *ids) {
    ag_error err;
    ids->n = 0;
    ag_status st = ag_chat_render(t->chat, 0, ids, NULL, &err);
    return st == AG_OK ? EXIT_DONE : complain_error(&err);
}

/* Finds the ids of `longer` from `tail` on in `in`. Returns their first index; SIZE_MAX if
 * absent. */
static size_t find_tail(const ag_ids *in, const ag_ids *longer, size_t tail) {
    const size_t n = longer->n - tail;
    for (size_t i = 0; n && i + n <= in->n; i++)
        if (!memcmp(in->data + i, longer->data + tail, n * sizeof *in->data)) return i;
    return SIZE_MAX;
}

/* Finds the first user turn: the tokens that a user turn adds after an answer are searched in the
 * first rendering. t->chat holds only the system prompt, before and after. */
static size_t prefix_by_comparison(transcript *t, const ag_ids *first) {
    ag_ids closed = {0}, more = {0};
    size_t at = SIZE_MAX;
    ag_chat *c = t->chat;
    const unsigned flags = AG_CHAT_NO_PROMPT;
    if (ag_chat_add(c, "user", SOME_USER, NULL) == AG_OK &&
        ag_chat_add(c, "assistant", SOME_ANSWER, NULL) == AG_OK &&
        ag_chat_render(c, flags, &closed, NULL, NULL) == AG_OK &&
        ag_chat_add(c, "user", SOME_USER, NULL) == AG_OK &&
        ag_chat_render(c, flags, &more, NULL, NULL) == AG_OK)
        at = find_tail(first, &more, ag_chat_common_prefix(&closed, &more));
    ag_ids_free(&closed);
    ag_ids_free(&more);
    ag_chat_truncate(c, n_before(t));
    return at;
}

static size_t common_prefix(transcript *t) {
    ag_ids alone = {0}, first = {0};
    size_t n = 0;
    ag_chat_truncate(t->chat, n_before(t));
    const bool empty = ag_chat_render(t->chat, AG_CHAT_NO_PROMPT, &alone, NULL, NULL) == AG_OK;
    const bool one = ag_chat_add(t->chat, "user", SOME_USER, NULL) == AG_OK &&
                     ag_chat_render(t->chat, AG_CHAT_NO_PROMPT, &first, NULL, NULL) == AG_OK;
    if (empty && one) n = ag_chat_common_prefix(&alone, &first);
    ag_chat_truncate(t->chat, n_before(t));
    if (one && (!empty || n < alone.n || !n)) {
        const size_t at = prefix_by_comparison(t, &first);
        if (at != SIZE_MAX && at > n) n = at;
    }
    ag_ids_free(&alone);
    ag_ids_free(&first);
    return n;
}

int transcript_prefix(transcript *t, uint32_t *n) {
    *n = (uint32_t)common_prefix(t);
    return add_again(t, 0);
}

int transcript_find_turn(transcript *t, size_t at, const ag_ids *all, uint32_t *position) {
    ag_ids before = {0};
    if (!at) {
        int code = transcript_prefix(t, position);
        if (*position > all->n) *position = (uint32_t)all->n;
        return code;
    }
    ag_chat_truncate(t->chat, n_before(t) + at);
    ag_error err;
    ag_status st = ag_chat_render(t->chat, AG_CHAT_NO_PROMPT, &before, NULL, &err);
    *position = st == AG_OK ? (uint32_t)ag_chat_common_prefix(&before, all) : 0;
    ag_ids_free(&before);
    int code = add_again(t, at);
    return st == AG_OK ? code : complain_error(&err);
}
