/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix files: cached sessions that have left memory. Each has two files in a directory of mode
 * 0700: NAME.session, a saved cache, and NAME.prefix, which describes it, so that it is found
 * without being read. They survive a restart. Without a directory every function does nothing.
 *
 * The holder of the engine lock owns the struct. */
#ifndef AG_SERVING_PREFIX_FILES_H
#define AG_SERVING_PREFIX_FILES_H

#include "serving/engine_lock.h"
#include "serving/prefix_file.h"
#include "serving/request.h"

/* The session that is being reloaded from its file, one at a time. */
typedef struct ag_prefix_fetch {
    ag_prefix_file *file;  /* NULL: none */
    ag_request_id request; /* request that waits for it */
    ag_prefix_entry as;    /* id, model, owned scope, parameters, has_evicted of the new entry */
    uint64_t bytes;        /* memory reserved for it */
} ag_prefix_fetch;

typedef struct ag_prefix_files {
    char *dir; /* owned; NULL: none */
    uint64_t max_bytes;
    const ag_backend *backend; /* borrowed; its log gets warnings */
    ag_prefix_store *store;    /* borrowed */
    ag_engine_lock *lock;      /* borrowed; released around disk I/O */
    ag_prefix_file *first;
    ag_prefix_fetch fetch;
    bool has_failed_writing; /* the last write failed, and this was logged */
    uint64_t n_written, n_read, n_failed;
} ag_prefix_files;

/* Creates the directory if need be, and reads the descriptions. AG_IO: others may enter the
 * directory. The struct holds `store`, `lock` and `backend` already; release it also after a
 * failure.
 */
ag_status ag_prefix_files_open(ag_prefix_files *files, const char *dir, uint64_t max_bytes,
                               ag_error *err);
/* Frees the list. The files stay. */
void ag_prefix_files_release(ag_prefix_files *files);
/* Returns whether an entry that leaves memory must be written first. */
bool ag_prefix_files_should_write(ag_prefix_files *files, const ag_prefix_entry *k);
/* Queues every resident entry that should be written. */
void ag_prefix_files_queue_all(ag_prefix_files *files);
/* Returns the file whose session has most tokens in common with the request's prompt, and clearly
 * more than `better_than`; NULL: none. */
ag_prefix_file *ag_prefix_files_find(ag_prefix_files *files, const ag_served_request *r,
                                     size_t better_than);
/* Returns the bytes of memory to reserve for reloading a file. */
uint64_t ag_prefix_file_memory_bytes(const ag_prefix_file *f);
/* Starts to reload a file for a request. The new entry will have this id. Returns false if out of
 * memory. */
bool ag_prefix_files_begin_fetch(ag_prefix_files *files, const ag_served_request *r,
                                 ag_prefix_file *f, uint64_t id);
/* File thread, with the engine lock: reads or writes one session. Returns false if there is nothing
 * to do. `files` is an ag_prefix_files. */
bool ag_prefix_files_run_next(void *files);

#endif
