/* SPDX-License-Identifier: Apache-2.0 */
/* Files of our own that are there as a whole or not at all, and tell when they are damaged: a
 * stream of bytes, and after it their checksum (core/checksum.h) in 8 bytes, lowest first. */
#ifndef AG_FORMATS_CHECKSUMMED_FILE_H
#define AG_FORMATS_CHECKSUMMED_FILE_H

#include "core/checksum.h"
#include "platform/atomic_file.h"

#include <antigravity/status.h>
#include <stdbool.h>

enum { AG_CHECKSUM_BYTES = 8 };

/* For a thread that must not wait for a disk while it has what others need: called before and after
 * whatever does. Bytes are copied in between, a mebibyte at a time at most. */
typedef struct ag_io_hooks {
    void (*pause)(void *user);
    void (*resume)(void *user);
    void *user;
} ag_io_hooks;

/* Zero-initialise, open, put, commit; always close. */
typedef struct ag_checksummed_writer {
    bool is_public; /* set before opening: others may read the file; else only its owner may */
    const ag_io_hooks *hooks; /* likewise, and borrowed; NULL: it just waits */
    ag_atomic_file file;
    unsigned char *buffer; /* owned; NULL: `file` is not open */
    size_t n_buffered;
    ag_checksum sum;
} ag_checksummed_writer;

/* Nothing appears under `path` before commit; until then the bytes lie in a file without a name or,
 * where the system has none, beside it as "path.saving-XXXXXX". What killed processes left behind
 * under such names is removed. What a link leads to is replaced, not the link. AG_IO: a place that
 * cannot be written to, or something other than a file is there. */
ag_status ag_checksummed_writer_open(ag_checksummed_writer *w, const char *path, ag_error *err);
/* w: ag_checksummed_writer. AG_IO says why, a full disk for example. */
ag_status ag_checksummed_put(void *w, const void *bytes, size_t n, ag_error *err);
/* Seals, waits until the bytes are on the disk, and puts the file in its place. */
ag_status ag_checksummed_writer_commit(ag_checksummed_writer *w, ag_error *err);
/* The same without a seal, for formats of others. */
ag_status ag_checksummed_writer_commit_plain(ag_checksummed_writer *w, ag_error *err);
/* Where what was put so far can be read, into path[cap], until it is committed or closed. */
ag_status ag_checksummed_writer_preview(ag_checksummed_writer *w, char *path, size_t cap,
                                        ag_error *err);
/* Removes what was not committed. */
void ag_checksummed_writer_close(ag_checksummed_writer *w);

typedef struct ag_checksummed_reader {
    int fd;
    const ag_io_hooks *hooks; /* set before opening; borrowed; NULL: it just waits */
    const char *path;         /* borrowed */
    uint64_t size;            /* of the file, seal included */
    uint64_t at;              /* bytes given so far */
    unsigned char *buffer;    /* owned */
    size_t n_buffered, n_read;
    ag_checksum sum;
} ag_checksummed_reader;

/* AG_NOT_FOUND, AG_IO; AG_FORMAT for a file too short to be sealed. */
ag_status ag_checksummed_reader_open(ag_checksummed_reader *r, const char *path, ag_error *err);
/* r: ag_checksummed_reader. AG_FORMAT if fewer than n bytes come before the seal. */
ag_status ag_checksummed_get(void *r, void *bytes, size_t n, ag_error *err);
/* After the last byte: AG_FORMAT if bytes are left or the seal is not theirs. */
ag_status ag_checksummed_reader_check(ag_checksummed_reader *r, ag_error *err);
void ag_checksummed_reader_close(ag_checksummed_reader *r);

#endif
