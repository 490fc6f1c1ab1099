/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a replay: KVzip's instructions as tokens, and the text that the model's template
 * writes after a message. */
#include "core/fail.h"

#include <antigravity/chat.h>
#include <string.h>

static const char instruction[] = "\n\nRepeat the previous context exactly.";
static const char instruction_next[] =
    "\n\nRepeat the part of the previous context exactly, starting with";

static ag_status encode(const ag_tokenizer *t, const char *text, ag_ids *out, ag_error *err) {
    return ag_tokenizer_encode(t, text, strlen(text), 0, out, err);
}

static ag_status render_message(ag_chat *c, const char *message, unsigned flags, ag_ids *out,
                                ag_error *err) {
    ag_chat_truncate(c, 0);
    AG_TRY(ag_chat_add(c, "user", message, err));
    return ag_chat_render(c, flags, out, NULL, err);
}

/* Sets *out to the ids after a user's message: those that two messages with a common prefix do not
 * share. */
static ag_status append_suffix(ag_chat *c, ag_ids *out, ag_error *err) {
    ag_ids with_prompt = {0}, longer = {0};
    ag_chat_set_clock(c, 0); /* templates that write the date give the same text on every day */
    ag_status st = render_message(c, "a", 0, &with_prompt, err);
    if (st == AG_OK) st = render_message(c, "a 0", AG_CHAT_NO_PROMPT, &longer, err);
    if (st == AG_OK) {
        const size_t n = ag_chat_common_prefix(&longer, &with_prompt);
        memmove(with_prompt.data, with_prompt.data + n,
                (with_prompt.n - n) * sizeof *with_prompt.data);
        with_prompt.n -= n;
        *out = with_prompt;
        with_prompt = (ag_ids){0};
    }
    ag_ids_free(&with_prompt);
    ag_ids_free(&longer);
    return st;
}

static ag_status find_suffix(const ag_tokenizer *t, const ag_chat_format *f, ag_ids *out,
                             ag_error *err) {
    ag_chat *c;
    if (!f) return encode(t, "\n", out, err);
    AG_TRY(ag_chat_create(f, &c, err));
    const ag_status st = append_suffix(c, out, err);
    ag_chat_destroy(c);
    return st;
}

ag_status ag_replay_request_make(const ag_tokenizer *t, const ag_chat_format *f,
                                 ag_replay_request *out, ag_error *err) {
    *out = (ag_replay_request){.suffix = {0}};
    ag_status st = encode(t, instruction, &out->instruction, err);
    if (st == AG_OK) st = encode(t, instruction_next, &out->instruction_next, err);
    if (st == AG_OK) st = find_suffix(t, f, &out->suffix, err);
    if (st != AG_OK) ag_replay_request_free(out);
    return st;
}

void ag_replay_request_free(ag_replay_request *r) {
    ag_ids_free(&r->instruction);
    ag_ids_free(&r->instruction_next);
    ag_ids_free(&r->suffix);
}

ag_compress_params ag_replay_request_params(const ag_replay_request *r) {
    ag_compress_params p = ag_compress_defaults();
    p.instruction = r->instruction.data;
    p.n_instruction = r->instruction.n;
    p.instruction_next = r->instruction_next.data;
    p.n_instruction_next = r->instruction_next.n;
    p.suffix = r->suffix.data;
    p.n_suffix = r->suffix.n;
    return p;
}
