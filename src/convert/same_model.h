/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that a GGUF file describes the same model as its source: the format has no keys for some
 * properties. */
#ifndef AG_CONVERT_SAME_MODEL_H
#define AG_CONVERT_SAME_MODEL_H

#include "formats/gguf_writer.h"
#include "formats/weight_source.h"

/* Call this after the whole file is written and before it is committed. Returns AG_UNSUPPORTED with
 * the first property that would differ. */
ag_status ag_check_same_model(const ag_weight_source *source, ag_gguf_writer *file, ag_error *err);

#endif
