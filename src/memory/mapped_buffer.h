/* SPDX-License-Identifier: Apache-2.0 */
/* A file as a buffer: read-only, its pages shared with the system's cache of the file. */
#ifndef AG_MEMORY_MAPPED_BUFFER_H
#define AG_MEMORY_MAPPED_BUFFER_H

#include <antigravity/tensor.h>

/* Maps the first `size` bytes of an open regular file; fd stays the caller's and may be closed.
 * path is for messages. Writing through the mapped pointer is a fault, ag_buffer_upload is
 * AG_UNSUPPORTED. ag_buffer_discard drops resident pages, which come back from the file when they
 * are read again. AG_IO if the file is shorter than `size`; a file that shrinks later kills the
 * reader (SIGBUS), as with every mapping. *out is NULL after a failure. */
ag_status ag_mapped_buffer_open(int fd, size_t size, const char *path, ag_buffer **out,
                                ag_error *err);

#endif
