/* SPDX-License-Identifier: Apache-2.0 */
/* What a path that is no model directory of ours is instead, and what to do about it: a message of
 * its own for what people have on their disks. */
#ifndef AG_FORMATS_RECOGNISE_H
#define AG_FORMATS_RECOGNISE_H

#include <antigravity/status.h>
#include <jansson.h>

/* AG_OK for a directory that may hold a model, whatever its files turn out to be. AG_NOT_FOUND for
 * a path that is not there, AG_UNSUPPORTED for a file (GGUF, PyTorch, ...) and for a directory
 * whose weights are in another framework's format. */
ag_status ag_recognise_model(const char *path, ag_error *err);

/* The first two of these for something that need not be a directory: a path that is not there, a
 * GGUF file. */
ag_status ag_recognise_path(const char *path, ag_error *err);

/* AG_UNSUPPORTED if config.json, an object, says that the weights are quantised already; `where`
 * begins the message. */
ag_status ag_recognise_quantised(const json_t *config, const char *where, ag_error *err);

#endif
