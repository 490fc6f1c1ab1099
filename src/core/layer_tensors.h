/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of the tensors of a layer. models/tensors.c has their names and shapes. */
#ifndef AG_CORE_LAYER_TENSORS_H
#define AG_CORE_LAYER_TENSORS_H

#include <stdbool.h>

typedef enum ag_layer_tensor {
    AG_LT_ATTENTION_NORM,
    AG_LT_WQ,
    AG_LT_WK,
    AG_LT_WV,
    AG_LT_WO,
    AG_LT_FFN_NORM,
    AG_LT_GATE,
    AG_LT_UP,
    AG_LT_DOWN,
    AG_LT_BQ,
    AG_LT_BK,
    AG_LT_BV,
    AG_LT_BO,
    AG_LT_BIAS_GATE,
    AG_LT_BIAS_UP,
    AG_LT_BIAS_DOWN,
    AG_LT_Q_NORM,
    AG_LT_K_NORM,
    AG_LT_POST_ATTENTION_NORM,
    AG_LT_POST_FFN_NORM,
    AG_LT_OUT_GATE,
    AG_LT_CONV_B,
    AG_LT_CONV_C,
    AG_LT_CONV_X,
    AG_LT_CONV,
    AG_LT_CONV_OUT,
    AG_LT_DELTA_QKV,
    AG_LT_DELTA_Z,
    AG_LT_DELTA_A,
    AG_LT_DELTA_B,
    AG_LT_DELTA_CONV,
    AG_LT_DELTA_DECAY,
    AG_LT_DELTA_DT_BIAS,
    AG_LT_DELTA_NORM,
    AG_LT_DELTA_OUT,
    AG_LT_INPUT_PROJECTION,
    AG_LT_INPUT_NORM,
    AG_LT_INPUT_GATE,
    AG_LT_INPUT_OUT,
    AG_LT_POST_INPUT_NORM,
    AG_LT_OUT_SCALE,
    AG_LT_SINKS,
    AG_LT_ROUTER,
    AG_LT_ROUTER_BIAS,
    AG_LT_ROUTER_NORM,
    AG_LT_CHOICE_BIAS,
    AG_LT_EXPERT_SCALE,
    AG_LT_EXPERT_GATE, /* these three are tables of one matrix for each expert */
    AG_LT_EXPERT_UP,
    AG_LT_EXPERT_DOWN,
    AG_LT_EXPERT_GATE_BIAS,
    AG_LT_EXPERT_UP_BIAS,
    AG_LT_EXPERT_DOWN_BIAS,
    AG_LT_SHARED_GATE,
    AG_LT_SHARED_UP,
    AG_LT_SHARED_DOWN,
    AG_LT_SHARED_ROUTER,
    AG_LT_EXPERT_NORM,
    AG_LT_POST_DENSE_NORM,
    AG_LT_POST_EXPERT_NORM,
    AG_LAYER_TENSORS,
    AG_LT_ONES = AG_LAYER_TENSORS, /* all ones, for norms without weight; not in files */
    AG_LAYER_TENSOR_SLOTS,
} ag_layer_tensor;

enum { AG_EXPERT_TABLES = AG_LT_EXPERT_DOWN - AG_LT_EXPERT_GATE + 1 };

/* Returns whether a tensor is a table of one matrix for each expert. */
static inline bool ag_is_expert_table(unsigned tensor) {
    return tensor >= AG_LT_EXPERT_GATE && tensor <= AG_LT_EXPERT_DOWN;
}

#endif
