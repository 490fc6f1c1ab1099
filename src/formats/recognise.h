/* SPDX-License-Identifier: Apache-2.0 */
/* Recognition of model files and directories, with a specific message for each unsupported format
 * that users often have. */
#ifndef AG_FORMATS_RECOGNISE_H
#define AG_FORMATS_RECOGNISE_H

#include <antigravity/status.h>
#include <jansson.h>
#include <stdbool.h>

/* Succeeds for a directory that may hold a model. Does not read its files. Fails with AG_NOT_FOUND
 * if the path does not exist or is a directory without files of a model; with AG_UNSUPPORTED for a
 * file (PyTorch, ...) or device and for a directory with weights in another framework's format. */
ag_status ag_recognise_model(const char *path, ag_error *err);

/* Fails with AG_NOT_FOUND if the path does not exist. */
ag_status ag_recognise_path(const char *path, ag_error *err);

/* Returns whether the path is a GGUF file, by its name or first bytes, or a directory with GGUF
 * files and without safetensors files, which take precedence. */
bool ag_recognise_gguf(const char *path);

/* Sets *file to the file that such a path means, in memory of ag_malloc(): the first of several
 * shards. Fails with AG_UNSUPPORTED for a directory with several models, which the message names.
 */
ag_status ag_recognise_gguf_file(const char *path, char **file, ag_error *err);

/* Parses "NAME-00002-of-00003.gguf" as shard 2 of 3. Returns false for other names. */
bool ag_recognise_gguf_shard(const char *path, unsigned *shard, unsigned *n_shards);
/* Returns the path of another shard in memory of ag_malloc(), or NULL without memory. */
char *ag_recognise_gguf_sibling(const char *path, unsigned shard);

/* Fails with AG_UNSUPPORTED if config.json, an object, says that the weights are quantised, except
 * to MXFP4. `where` starts the message. */
ag_status ag_recognise_quantised(const json_t *config, const char *where, ag_error *err);

#endif
