/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts on standard output, for other programs to ask. */
#ifndef ANTIGRAVITY_RULER_PRINT_H
#define ANTIGRAVITY_RULER_PRINT_H

#include "prompt.h"

/* A JSON object on a line. Returns an exit code. */
int ruler_print(const ruler_task *task, uint32_t length, int64_t seed, int64_t number,
                const ruler_prompt *p);

#endif
