/* SPDX-License-Identifier: Apache-2.0 */
/* Checksummed file: a stream of bytes followed by its checksum (core/checksum.h), 8 bytes,
 * little-endian. A writer replaces the file atomically (platform/atomic_file.h). A reader detects
 * damage. */
#ifndef AG_FORMATS_CHECKSUMMED_FILE_H
#define AG_FORMATS_CHECKSUMMED_FILE_H

#include "core/checksum.h"
#include "platform/atomic_file.h"

#include <antigravity/status.h>
#include <stdbool.h>

enum { AG_CHECKSUM_BYTES = 8 };

/* Callbacks around blocking file I/O, for a thread that holds a lock: pause() is called before,
 * resume() after. Between I/O calls at most 1 MiB is buffered. */
typedef struct ag_io_hooks {
    void (*pause)(void *user);
    void (*resume)(void *user);
    void *user;
} ag_io_hooks;

/* Writer. Zero-initialise, open, put, commit; always close. */
typedef struct ag_checksummed_writer {
    bool is_public; /* set before opening: every user may read the file; else its owner alone */
    const ag_io_hooks *hooks; /* set before opening; borrowed; NULL: none */
    ag_atomic_file file;
    unsigned char *buffer; /* owned; NULL: `file` is not open */
    size_t n_buffered;
    ag_checksum sum;
} ag_checksummed_writer;

/* Opens the writer. The file at `path` changes only at commit. The target of a link is replaced,
 * not the link. Fails with AG_IO if the path cannot be written or is not a regular file. */
ag_status ag_checksummed_writer_open(ag_checksummed_writer *w, const char *path, ag_error *err);
/* Writes n bytes. w: ag_checksummed_writer. Fails with AG_IO, for example if the disk is full. */
ag_status ag_checksummed_put(void *w, const void *bytes, size_t n, ag_error *err);
/* Writes the checksum, waits until the bytes are on disk, and replaces the file. */
ag_status ag_checksummed_writer_commit(ag_checksummed_writer *w, ag_error *err);
/* The same without a checksum, for other formats. */
ag_status ag_checksummed_writer_commit_plain(ag_checksummed_writer *w, ag_error *err);
/* Writes the path under which the bytes so far can be read until commit or close. */
ag_status ag_checksummed_writer_preview(ag_checksummed_writer *w, char *path, size_t cap,
                                        ag_error *err);
/* Removes what was not committed. */
void ag_checksummed_writer_close(ag_checksummed_writer *w);

typedef struct ag_checksummed_reader {
    int fd;
    const ag_io_hooks *hooks; /* set before opening; borrowed; NULL: none */
    const char *path;         /* borrowed */
    uint64_t size;            /* size of the file, with its checksum */
    uint64_t at;              /* bytes returned so far */
    unsigned char *buffer;    /* owned */
    size_t n_buffered, n_read;
    ag_checksum sum;
} ag_checksummed_reader;

/* Opens a file. Fails as ag_file_open(), and with AG_FORMAT if the file is shorter than a checksum.
 */
ag_status ag_checksummed_reader_open(ag_checksummed_reader *r, const char *path, ag_error *err);
/* Reads n bytes. r: ag_checksummed_reader. Fails with AG_FORMAT if fewer bytes remain before the
 * checksum. */
ag_status ag_checksummed_get(void *r, void *bytes, size_t n, ag_error *err);
/* Checks the file after the last byte. Fails with AG_FORMAT if bytes remain or the checksum
 * differs. */
ag_status ag_checksummed_reader_check(ag_checksummed_reader *r, ag_error *err);
void ag_checksummed_reader_close(ag_checksummed_reader *r);

#endif
