/* SPDX-License-Identifier: Apache-2.0 */
/* What models sampled as answers, so that a client that sends an answer again, as agents do with
 * every turn, sends the tokens that the cache was made of: re-tokenised text has others, and
 * templates write calls in their own way. Of each scope by itself; any thread may ask. */
#ifndef ANTIGRAVITY_SERVE_JOB_ANSWER_MEMORY_H
#define ANTIGRAVITY_SERVE_JOB_ANSWER_MEMORY_H

#include <antigravity/chat.h>
#include <jansson.h>

typedef struct answer_memory answer_memory;

/* NULL: out of memory. Beyond so many bytes, and 4096 answers, the longest unused are forgotten. */
answer_memory *answer_memory_create(size_t max_bytes);
void answer_memory_destroy(answer_memory *m);
size_t answer_memory_bytes(answer_memory *m);

/* An answer as ag_chat_keep_answer() wrote it; what there is no memory for is forgotten. */
void answer_memory_store(answer_memory *m, const char *model, const char *scope,
                         const ag_text *answer);
/* Tells the chat what is known of these messages, each answer once, however many messages it is of:
 * never more than there is in m. Adds to *n_bytes what the chat takes for it, at most. */
ag_status answer_memory_restore(answer_memory *m, const char *model, const char *scope,
                                const json_t *messages, ag_chat *chat, size_t *n_bytes,
                                ag_error *err);

/* All of them in a file, and back. False: why has one line; a file that is not there is none of
 * these. Lines that are damaged are left out. */
enum { ANSWER_REASON_SIZE = 512 };
bool answer_memory_save(answer_memory *m, const char *path, char reason[ANSWER_REASON_SIZE]);
bool answer_memory_load(answer_memory *m, const char *path, char reason[ANSWER_REASON_SIZE]);

#endif
