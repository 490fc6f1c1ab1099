/* SPDX-License-Identifier: Apache-2.0 */
/* Response store: keeps responses with their conversations, so that clients can retrieve, continue
 * and delete them. Bounded in number and bytes: the one that was used longest ago is dropped first.
 * Its memory belongs to no request's account. Any thread may call the functions. */
#ifndef ANTIGRAVITY_SERVE_OPENAI_RESPONSE_STORE_H
#define ANTIGRAVITY_SERVE_OPENAI_RESPONSE_STORE_H

#include <stdbool.h>
#include <stddef.h>

enum { RESPONSE_STORE_MAX = 1024 }; /* responses */

typedef struct response_store response_store;

/* Returns a store of at most max_bytes, of which a response may take a quarter. NULL: no memory. */
response_store *response_store_create(size_t max_bytes);
void response_store_destroy(response_store *s);
size_t response_store_bytes(response_store *s);
/* Returns the maximum bytes of a response with its conversation. */
size_t response_store_max_bytes(const response_store *s);

/* A response as JSON text. Both texts end in a NUL. */
typedef struct stored_response {
    char *items; /* the conversation before the response: a list of items */
    char *response;
} stored_response;

/* Copies a response into the store. Returns false if it is too large, or without memory. */
bool response_store_add(response_store *s, const char *id, const char *client,
                        const stored_response *r);
/* Copies a response of this client to *out, on the thread's account. Returns false if the store has
 * none; *out is empty then, and without memory. */
bool response_store_get(response_store *s, const char *id, const char *client,
                        stored_response *out);
/* Drops a response. Returns false if the store has none. */
bool response_store_remove(response_store *s, const char *id, const char *client);
/* Frees the texts. */
void stored_response_free(stored_response *r);

#endif
