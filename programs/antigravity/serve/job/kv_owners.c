/* SPDX-License-Identifier: Apache-2.0 */
#include "kv_owners.h"

#include <pthread.h>
#include <string.h>

enum { MAX_OWNERS = 1024 };

static struct {
    pthread_mutex_t lock;
    struct {
        char id[KV_OWNER_ID];
        ag_request_id request;
    } all[MAX_OWNERS];
    size_t n; /* ids added since the start */
} owners = {.lock = PTHREAD_MUTEX_INITIALIZER};

void kv_owner_add(const char *id, ag_request_id request) {
    pthread_mutex_lock(&owners.lock);
    const size_t at = owners.n++ % MAX_OWNERS;
    memcpy(owners.all[at].id, id, KV_OWNER_ID);
    owners.all[at].request = request;
    pthread_mutex_unlock(&owners.lock);
}

/* Compares in constant time. */
static bool is_same_id(const char *a, const char *b) {
    unsigned char differs = 0;
    for (size_t i = 0; i < KV_OWNER_ID; i++) differs |= (unsigned char)(a[i] ^ b[i]);
    return !differs;
}

bool kv_owner_find(const char *id, ag_request_id *request) {
    bool found = false;
    if (strlen(id) != KV_OWNER_ID) return false;
    pthread_mutex_lock(&owners.lock);
    const size_t n = owners.n < MAX_OWNERS ? owners.n : MAX_OWNERS;
    for (size_t i = 0; i < n; i++) {
        if (!is_same_id(owners.all[i].id, id)) continue;
        *request = owners.all[i].request;
        found = true;
    }
    pthread_mutex_unlock(&owners.lock);
    return found;
}
