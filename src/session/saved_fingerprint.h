/* SPDX-License-Identifier: Apache-2.0 */
/* Fingerprint of a saved cache: lines "name=value" that must be equal in the session that restores
 * it. */
#ifndef AG_SESSION_SAVED_FINGERPRINT_H
#define AG_SESSION_SAVED_FINGERPRINT_H

#include "session/session_impl.h"

enum { AG_FINGERPRINT_BYTES = 2048 };

typedef struct ag_saved_fingerprint {
    char text[AG_FINGERPRINT_BYTES]; /* terminated */
    size_t len;
} ag_saved_fingerprint;

/* Describes the session. tokenizer may be NULL. Reads a sample of the model's files. */
ag_status ag_saved_fingerprint_of(ag_session *s, const ag_tokenizer *tokenizer,
                                  ag_saved_fingerprint *out, ag_error *err);
/* AG_UNSUPPORTED: names the first field that differs; AG_FORMAT: `saved` is damaged. A tokenizer
 * that only one side has is no difference. */
ag_status ag_saved_fingerprint_compare(const ag_saved_fingerprint *saved,
                                       const ag_saved_fingerprint *here, const char *path,
                                       ag_error *err);

#endif
