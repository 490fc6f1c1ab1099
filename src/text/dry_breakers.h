/* SPDX-License-Identifier: Apache-2.0 */
/* Breakers of DRY: texts across which a repetition does not count, as sequences of tokens. */
#ifndef AG_TEXT_DRY_BREAKERS_H
#define AG_TEXT_DRY_BREAKERS_H

#include <antigravity/sampler.h>
#include <stdbool.h>

/* text: the newest tokens, newest first. Returns the tokens of the longest breaker that begins at
 * text[i]; 0 if there is none. b may be NULL. */
size_t ag_dry_breakers_match(const ag_dry_breakers *b, const int32_t *text, size_t i);
/* Returns whether the token contains a breaker. */
bool ag_dry_breakers_has(const ag_dry_breakers *b, int32_t id);

#endif
