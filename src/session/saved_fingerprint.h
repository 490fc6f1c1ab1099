/* SPDX-License-Identifier: Apache-2.0 */
/* What a saved cache must agree on with the session that takes it: lines of "name=value". */
#ifndef AG_SESSION_SAVED_FINGERPRINT_H
#define AG_SESSION_SAVED_FINGERPRINT_H

#include "session/session_impl.h"

enum { AG_FINGERPRINT_BYTES = 2048 };

typedef struct ag_saved_fingerprint {
    char text[AG_FINGERPRINT_BYTES]; /* terminated */
    size_t len;
} ag_saved_fingerprint;

/* Of this session; tokenizer may be NULL. Reads some bytes of the model's files. */
ag_status ag_saved_fingerprint_of(ag_session *s, const ag_tokenizer *tokenizer,
                                  ag_saved_fingerprint *out, ag_error *err);
/* AG_UNSUPPORTED names the first fact that differs, AG_FORMAT if `saved` is no list of these facts.
 * A tokenizer that only one side knows is no difference. */
ag_status ag_saved_fingerprint_compare(const ag_saved_fingerprint *saved,
                                       const ag_saved_fingerprint *here, const char *path,
                                       ag_error *err);

#endif
