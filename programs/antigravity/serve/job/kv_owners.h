/* SPDX-License-Identifier: Apache-2.0 */
/* Maps the id of an HTTP request to its request in the engine. Only a client that knows the random
 * id, from the X-Request-Id of its response, may see the text of its session. */
#ifndef ANTIGRAVITY_SERVE_JOB_KV_OWNERS_H
#define ANTIGRAVITY_SERVE_JOB_KV_OWNERS_H

#include <antigravity/serving.h>

enum { KV_OWNER_ID = 32 };

/* Keep the last 1024 requests; id has KV_OWNER_ID characters. Both may be called from any
 * thread. */
void kv_owner_add(const char *id, ag_request_id request);
bool kv_owner_find(const char *id, ag_request_id *request);

#endif
