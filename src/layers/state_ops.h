/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of layers that store a state instead of keys and values. */
#ifndef AG_LAYERS_STATE_OPS_H
#define AG_LAYERS_STATE_OPS_H

#include "layers/pass.h"

/* Runs AG_OP_SHORT_CONV: out of in, [n, channels] each. */
ag_status ag_run_short_conv(const ag_pass *pass, const ag_op *op, const ag_tensor *in,
                            ag_tensor *out, ag_error *err);
/* Runs AG_OP_DELTA_NET: out[0] [n, values] of in: qkv [n, channels], a and b [n, value heads].
 * out[1] [n, channels] is scratch. */
ag_status ag_run_delta_net(const ag_pass *pass, const ag_op *op, const ag_tensor *in,
                           ag_tensor *out, ag_error *err);

#endif
