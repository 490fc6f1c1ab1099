/* SPDX-License-Identifier: Apache-2.0 */
/* Whose conversation a session is: the text of one is shown to him alone who names the request that
 * it answers. A request's id is drawn at random and told in the X-Request-Id of its response. */
#ifndef ANTIGRAVITY_SERVE_JOB_KV_OWNERS_H
#define ANTIGRAVITY_SERVE_JOB_KV_OWNERS_H

#include <antigravity/serving.h>

enum { KV_OWNER_ID = 32 };

/* Of the last 1024 requests; id has 32 characters. Both from any thread. */
void kv_owner_add(const char *id, ag_request_id request);
bool kv_owner_find(const char *id, ag_request_id *request);

#endif
