/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt writer: encodes a context and a question, as one user message if the model has a chat
 * template. */
#ifndef ANTIGRAVITY_PROMPT_WRITER_H
#define ANTIGRAVITY_PROMPT_WRITER_H

#include <antigravity/chat.h>
#include <antigravity/model.h>

typedef struct prompt_writer {
    const ag_tokenizer *tokenizer; /* borrowed */
    ag_chat_format *format;        /* owned; NULL: the model has no template */
    ag_chat *chat;                 /* owned */
} prompt_writer;

void prompt_writer_close(prompt_writer *w);

typedef struct written_prompt {
    ag_ids ids;        /* owned */
    size_t n_context;  /* ids before the question */
    size_t n_question; /* ids up to the end of the question */
    size_t n_message;  /* ids before the answer prefix */
} written_prompt;

/* Replaces out->ids by the encoded prompt. The texts are UTF-8. answer_prefix is the start of the
 * model's answer. Without a template the texts are concatenated after BOS. */
ag_status prompt_write(prompt_writer *w, const char *context, const char *question,
                       const char *answer_prefix, written_prompt *out, ag_error *err);
void written_prompt_free(written_prompt *p);

/* Returns whether the id ends an answer. */
bool prompt_ends_answer(const prompt_writer *w, const ag_model_info *info, int32_t id);

#endif
