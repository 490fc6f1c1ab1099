/* SPDX-License-Identifier: Apache-2.0 */
/* What a path that is no model directory of ours is instead, and what to do about it: a message of
 * its own for what people have on their disks. */
#ifndef AG_FORMATS_RECOGNISE_H
#define AG_FORMATS_RECOGNISE_H

#include <antigravity/status.h>
#include <jansson.h>
#include <stdbool.h>

/* AG_OK for a directory that may hold a model, whatever its files turn out to be. AG_NOT_FOUND for
 * a path that is not there, AG_UNSUPPORTED for a file (PyTorch, ...) and for a directory whose
 * weights are in another framework's format. */
ag_status ag_recognise_model(const char *path, ag_error *err);

/* The first of these for something that need not be a directory. */
ag_status ag_recognise_path(const char *path, ag_error *err);

/* A GGUF file, by its first bytes or its name, or a directory with such files and no safetensors
 * files that would be read instead. */
bool ag_recognise_gguf(const char *path);

/* The file that such a path means, in memory of ag_malloc: of several parts the first one.
 * AG_UNSUPPORTED for a directory that holds several models: the message names them. */
ag_status ag_recognise_gguf_file(const char *path, char **file, ag_error *err);

/* "NAME-00002-of-00003.gguf" is part 2 of 3; false for another name. */
bool ag_recognise_gguf_shard(const char *path, unsigned *shard, unsigned *n_shards);
/* The path of another part, in memory of ag_malloc; NULL without memory. */
char *ag_recognise_gguf_sibling(const char *path, unsigned shard);

/* AG_UNSUPPORTED if config.json, an object, says that the weights are quantised already; `where`
 * begins the message. */
ag_status ag_recognise_quantised(const json_t *config, const char *where, ag_error *err);

#endif
