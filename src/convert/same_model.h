/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a GGUF file says all that its source does: the format has no keys for some of it. */
#ifndef AG_CONVERT_SAME_MODEL_H
#define AG_CONVERT_SAME_MODEL_H

#include "formats/gguf_writer.h"
#include "formats/weight_source.h"

/* AG_UNSUPPORTED names what would be another model's once the file, of which all is written and
 * nothing committed, is read. */
ag_status ag_check_same_model(const ag_weight_source *source, ag_gguf_writer *file, ag_error *err);

#endif
