/* SPDX-License-Identifier: Apache-2.0 */
/* Cache of sampled answers and their token ids. Clients send earlier answers back as text with
 * every turn; the sampled ids keep the prompt equal to the cached one. Tokenizing the text again
 * gives other ids, and templates write tool calls differently. Entries are separate for each model
 * and scope. Functions may be called from any thread. */
#ifndef ANTIGRAVITY_SERVE_JOB_ANSWER_MEMORY_H
#define ANTIGRAVITY_SERVE_JOB_ANSWER_MEMORY_H

#include <antigravity/chat.h>
#include <jansson.h>

typedef struct answer_memory answer_memory;

/* Returns a new cache, or NULL without memory. It holds at most 4096 answers and max_bytes bytes,
 * and evicts the least recently used. */
answer_memory *answer_memory_create(size_t max_bytes);
void answer_memory_destroy(answer_memory *m);
size_t answer_memory_bytes(answer_memory *m);

/* Stores an answer as ag_chat_keep_answer() wrote it. Drops it if there is no memory. */
void answer_memory_store(answer_memory *m, const char *model, const char *scope,
                         const ag_text *answer);
/* Gives the chat the stored answers of the assistant messages, each at most once. Adds an upper
 * bound of the chat's memory for them to *n_bytes. */
ag_status answer_memory_restore(answer_memory *m, const char *model, const char *scope,
                                const json_t *messages, ag_chat *chat, size_t *n_bytes,
                                ag_error *err);

/* Write all answers to a file, and read them. They fail with reason[ANSWER_REASON_SIZE]. A missing
 * file is no failure; damaged lines are skipped. */
enum { ANSWER_REASON_SIZE = 512 };
bool answer_memory_save(answer_memory *m, const char *path, char reason[ANSWER_REASON_SIZE]);
bool answer_memory_load(answer_memory *m, const char *path, char reason[ANSWER_REASON_SIZE]);

#endif
