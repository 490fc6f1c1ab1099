/* SPDX-License-Identifier: Apache-2.0 */
/* Mapped buffer: a read-only buffer of a file's bytes. Its pages are shared with the system's
 * cache of the file. */
#ifndef AG_MEMORY_MAPPED_BUFFER_H
#define AG_MEMORY_MAPPED_BUFFER_H

#include <antigravity/tensor.h>

/* Maps the first `size` bytes of an open regular file. fd stays the caller's and may be closed;
 * path is for messages. Writing through the mapped pointer faults; ag_buffer_upload() fails with
 * AG_UNSUPPORTED. ag_buffer_discard() drops resident pages, which the next access reads again.
 * Fails with AG_IO if the file is shorter than `size`. A file that shrinks later raises SIGBUS
 * on access, as with every mapping. *out is NULL after a failure. */
ag_status ag_mapped_buffer_open(int fd, size_t size, const char *path, ag_buffer **out,
                                ag_error *err);

#endif
