/* SPDX-License-Identifier: Apache-2.0 */
/* Guards against a model file that is truncated while its mapped weights are read. */
#ifndef ANTIGRAVITY_TRUNCATED_FILE_H
#define ANTIGRAVITY_TRUNCATED_FILE_H

/* From now on a SIGBUS prints a message with `dir` and exits with EXIT_FAILED. NULL restores the
 * default. `dir` is borrowed. */
void truncated_file_watch(const char *dir);

#endif
