/* SPDX-License-Identifier: Apache-2.0 */
#include "prompt_writer.h"

#include "../support/text_buffer.h"

#include <string.h>

void prompt_writer_close(prompt_writer *w) {
    ag_chat_destroy(w->chat);
    ag_chat_format_destroy(w->format);
    *w = (prompt_writer){.tokenizer = NULL};
}

static ag_status encode(const prompt_writer *w, const char *text, unsigned flags, ag_ids *ids,
                        ag_error *err) {
    return ag_tokenizer_encode(w->tokenizer, text, strlen(text), flags, ids, err);
}

static ag_status write_plain(const prompt_writer *w, const char *context, const char *question,
                             written_prompt *out, ag_error *err) {
    ag_status st = encode(w, context, AG_ENCODE_BOS, &out->ids, err);
    out->n_context = out->ids.n;
    if (st == AG_OK) st = encode(w, question, 0, &out->ids, err);
    out->n_question = out->ids.n;
    return st;
}

/* Appends to *ids a user message of three texts, without the start of the answer. */
static ag_status render(const prompt_writer *w, const char *first, const char *second,
                        const char *third, unsigned flags, ag_ids *ids, ag_error *err) {
    text_buffer text = {0};
    text_add(&text, first);
    text_add(&text, second);
    text_add(&text, third);
    ag_status st = AG_NOMEM;
    if (text.failed) *err = (ag_error){.status = AG_NOMEM, .msg = "out of memory: chat message"};
    else {
        ag_chat_truncate(w->chat, 0);
        st = ag_chat_add(w->chat, "user", text.data, err);
        if (st == AG_OK) st = ag_chat_render(w->chat, flags, ids, NULL, err);
    }
    text_release(&text);
    return st;
}

/* Sets *at to the length of the common prefix of `all` and another message. */
static ag_status find_split(const prompt_writer *w, const char *first, const char *second,
                            const char *third, const ag_ids *all, size_t *at, ag_error *err) {
    ag_ids other = {0};
    ag_status st = render(w, first, second, third, AG_CHAT_NO_PROMPT, &other, err);
    if (st == AG_OK) *at = ag_chat_common_prefix(&other, all);
    ag_ids_free(&other);
    return st;
}

static ag_status write_message(const prompt_writer *w, const char *context, const char *question,
                               written_prompt *out, ag_error *err) {
    static const char more[] = " 0"; /* no question starts like this */
    ag_status st = render(w, context, question, "", 0, &out->ids, err);
    if (st == AG_OK) st = find_split(w, context, "", "", &out->ids, &out->n_context, err);
    if (st == AG_OK) st = find_split(w, context, question, more, &out->ids, &out->n_question, err);
    return st;
}

ag_status prompt_write(prompt_writer *w, const char *context, const char *question,
                       const char *answer_prefix, written_prompt *out, ag_error *err) {
    out->ids.n = 0;
    ag_status st = w->chat ? write_message(w, context, question, out, err)
                           : write_plain(w, context, question, out, err);
    out->n_message = out->ids.n;
    return st == AG_OK ? encode(w, answer_prefix, 0, &out->ids, err) : st;
}

void written_prompt_free(written_prompt *p) {
    ag_ids_free(&p->ids);
    *p = (written_prompt){.n_context = 0};
}

bool prompt_ends_answer(const prompt_writer *w, const ag_model_info *info, int32_t id) {
    for (size_t i = 0; i < info->n_eos; i++)
        if (info->eos_ids[i] == id) return true;
    size_t n = 0;
    const int32_t *stops = w->format ? ag_chat_format_stop_ids(w->format, &n) : NULL;
    for (size_t i = 0; i < n; i++)
        if (stops[i] == id) return true;
    return false;
}
