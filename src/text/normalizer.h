/* SPDX-License-Identifier: Apache-2.0 */
/* The normalizer of a tokenizer: text to text, before anything is split. */
#ifndef AG_TEXT_NORMALIZER_H
#define AG_TEXT_NORMALIZER_H

#include "text/bytes.h"
#include "text/regex.h"

typedef struct ag_normalizer {
    struct ag_normalizer_step *steps; /* none: the text stays as it is */
    size_t n, cap;
} ag_normalizer;

typedef enum ag_unicode_form { AG_NFC, AG_NFD, AG_NFKC, AG_NFKD } ag_unicode_form;

/* Steps are added to a zeroed normalizer; release with ag_normalizer_free whatever these return. */
ag_status ag_normalizer_add_form(ag_normalizer *nm, ag_unicode_form form, ag_error *err);
ag_status ag_normalizer_add_prepend(ag_normalizer *nm, const char *content, ag_error *err);
ag_status ag_normalizer_add_replace(ag_normalizer *nm, const char *pattern, const char *content,
                                    ag_error *err);
/* The "normalizer" of a tokenizer.json; v may be NULL or null. */
ag_status ag_normalizer_read_json(ag_normalizer *nm, const json_t *v, ag_error *err);
void ag_normalizer_free(ag_normalizer *nm);

/* The normalised form of text[0..len) is left in *out; *spare is scratch. *lost_start becomes true
 * if the first character no longer stands for the start of the text, else it is not touched. */
ag_status ag_normalizer_apply(const ag_normalizer *nm, const char *text, size_t len, ag_text *out,
                              ag_text *scratch, bool *lost_start, ag_error *err);

/* unicode_form.c: appends the normalisation form of valid UTF-8 (Unicode annex 15). */
ag_status ag_unicode_normalize(ag_unicode_form form, const char *text, size_t len, ag_text *out,
                               ag_error *err);

#endif
