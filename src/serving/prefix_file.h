/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix file: describes a saved session, so that it is found without being read. The description
 * is stored in NAME.prefix, beside the session in NAME.session. */
#ifndef AG_SERVING_PREFIX_FILE_H
#define AG_SERVING_PREFIX_FILE_H

#include "serving/prefix_store.h"

/* Parameters in which a session and a request must agree. */
typedef struct ag_prefix_file_key {
    uint32_t max_seq_len, prefill_chunk, k_type, v_type, k_rotation;
} ag_prefix_file_key;

typedef struct ag_prefix_file {
    struct ag_prefix_file *next;
    char name[24];       /* 16 hexadecimal digits: a checksum of model, scope, policy, key, ids */
    char *model, *scope; /* scope NULL: of requests without one */
    char *policy;        /* from ag_prefix_file_policy(); NULL: no policy */
    bool has_evicted;    /* tokens have been evicted: only its end can be continued */
    ag_prefix_file_key key;
    ag_ids ids;
    uint64_t bytes; /* size of both files */
    double used_at; /* seconds since the epoch, as file times */
} ag_prefix_file;

/* Describes an entry. Returns NULL if out of memory, or if another process could not recognise its
 * policy. */
ag_prefix_file *ag_prefix_file_create(const ag_prefix_entry *k);
void ag_prefix_file_destroy(ag_prefix_file *f);

/* Writes the description to NAME.prefix at `path`. */
ag_status ag_prefix_file_write(const ag_prefix_file *f, const char *path, ag_error *err);
/* Reads all fields but name, bytes and used_at. AG_FORMAT: damaged. */
ag_status ag_prefix_file_read(const char *path, ag_prefix_file *f, ag_error *err);

/* Return the key of session parameters, and whether two keys are equal. */
ag_prefix_file_key ag_prefix_file_key_of(const ag_session_params *p);
bool ag_prefix_file_same_key(const ag_prefix_file_key *a, const ag_prefix_file_key *b);
/* Returns a policy's name and parameters as text; NULL without a policy. *unknown: the policy is
 * not of the library or watches memory, so another process cannot recognise it. The caller frees
 * the text. */
char *ag_prefix_file_policy(const ag_session_params *p, bool *unknown);

#endif
