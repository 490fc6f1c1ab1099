/* SPDX-License-Identifier: Apache-2.0 */
/* Program: a forward pass as a list of operations. models/lower.c makes it from a model's
 * description. Values, weights and parameters are indices of its arrays. */
#ifndef AG_CORE_PROGRAM_H
#define AG_CORE_PROGRAM_H

#include "core/experts.h"
#include "core/layer_tensors.h"

#include <antigravity/operations.h>

typedef enum ag_op_code {
    AG_OP_PRODUCTS,    /* out[i] = in[0] x w[i], for up to 4 matrices */
    AG_OP_BIAS,        /* out[0] += w[0], in place */
    AG_OP_NORM,        /* out[0] = RMSNorm of in[0], in groups of the size of w[0] */
    AG_OP_ADD,         /* out[0] += in[1], in place */
    AG_OP_SCALE,       /* out[0] *= w[0], one number, in place */
    AG_OP_SOFTCAP,     /* out[0] = number tanh(in[0] / number), in place */
    AG_OP_GATE,        /* out[0] = f(in[0]) in[1], in place of in[0] */
    AG_OP_ATTEND,      /* out[0] = attention of q, k, v; appends k and v to the caches */
    AG_OP_SHORT_CONV,  /* out[0] = causal convolution of in[0]; advances its state */
    AG_OP_DELTA_NET,   /* out[0] = gated delta rule of qkv, a, b; out[1] is scratch */
    AG_OP_ROUTE,       /* out[0] = routes of the logits in[0]: core/experts.h */
    AG_OP_EXPERTS,     /* out[i] = in[0] x w[i] of the experts in the routes in[1] */
    AG_OP_EXPERT_BIAS, /* out[0] += w[0] of the experts in the routes in[1], in place */
    AG_OP_COMBINE,     /* out[0] = weighted sum of in[0] by the routes in[1] */
    AG_OP_ROW_GATE,    /* out[0] *= sigmoid(in[1]), one number for each row, in place */
    AG_OP_CODES,
} ag_op_code;

/* Function f of AG_OP_GATE. */
typedef enum ag_gate_kind {
    AG_GATE_SILU,
    AG_GATE_GELU_TANH,
    AG_GATE_SIGMOID,
    AG_GATE_NONE,
    AG_GATE_SWIGLU_CLAMPED, /* ag_swiglu_clamped() with the limit `number` */
} ag_gate_kind;

enum {
    AG_OP_VALUES = 4,
    AG_NONE = UINT16_MAX,      /* no value, weight, layer or parameters */
    AG_OP_LAYER_BEGINS = 1,    /* flag: the first operation of a layer */
    AG_OP_PICKED = 2,          /* flag of EXPERTS: rows of in[0] are picked rows */
    AG_VALUE_COLS = 16,        /* values start at multiples of 16 columns: 64 bytes */
    AG_MODEL_WEIGHT = AG_NONE, /* ag_weight_ref.layer of the two weights below */
    AG_MODEL_NORM = 0,
    AG_MODEL_HEAD = 1,
};

typedef struct ag_op {
    uint8_t code; /* ag_op_code */
    uint8_t kind; /* ag_gate_kind, for GATE */
    uint8_t flags;
    uint16_t layer;
    /* index into attend, for ATTEND; into recurrent, for SHORT_CONV and DELTA_NET; into route, for
     * ROUTE and EXPERTS */
    uint16_t params;
    uint16_t in[AG_OP_VALUES], out[AG_OP_VALUES]; /* values; AG_NONE after the last */
    uint16_t w[AG_OP_VALUES];                     /* weights; AG_NONE after the last */
    float number; /* epsilon, for NORM; the cap, for SOFTCAP; the limit, for GATE */
} ag_op;

/* A value: one F32 row of `cols` numbers for each row of the pass. */
typedef struct ag_value {
    const char *name; /* static: "stream", "q" */
    uint32_t cols;
    uint32_t offset; /* first column in the workspace; UINT32_MAX: not in the workspace */
} ag_value;

/* A tensor of a layer, or, with layer AG_MODEL_WEIGHT, one of the model. */
typedef struct ag_weight_ref {
    uint16_t layer, tensor;
} ag_weight_ref;

/* A weight of a program. */
typedef struct ag_bound_weight {
    const ag_tensor *tensor; /* borrowed; of a table: the first of its tensors */
    float number;            /* the tensor's value, for AG_OP_SCALE */
} ag_bound_weight;

typedef struct ag_attend_op {
    uint32_t cache; /* index of the cache in a session */
    bool shares_kv; /* uses the keys and values of another layer; k and v are not read */
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t rope;     /* table of the model; AG_NONE: no rotation */
    float rope_factor; /* multiplies the rotated values */
    float query_beta;  /* multiplies queries at position p by 1 + beta log(1 + floor(p / period)) */
    uint32_t query_period;
    uint32_t window_list; /* index of the list of first visible positions; AG_NONE: no window */
    uint32_t window;      /* number of positions that a query sees, its own included; 0: all */
    bool sinks;           /* w[0] has a logit for each head that joins the softmax */
    float scale, softcap; /* scale: factor of q . k; softcap: limit of scaled scores, 0: none */
} ag_attend_op;

typedef struct ag_recurrent_op {
    uint32_t state;        /* index of the state in a session */
    uint32_t taps;         /* tokens of the convolution, its own included */
    ag_delta_params delta; /* for DELTA_NET */
} ag_recurrent_op;

/* Numbers of a router. */
typedef struct ag_route_op {
    ag_route_params params;
    bool choice_bias, expert_scale; /* w[] of ROUTE has these vectors, in this order */
} ag_route_op;

typedef struct ag_stage ag_stage; /* core/stages.h */

typedef struct ag_program {
    ag_op *ops;
    ag_value *values;
    ag_weight_ref *weights;
    ag_attend_op *attend;
    ag_recurrent_op *recurrent;
    ag_route_op *route;
    uint16_t *layer_inputs; /* [n_layers] values that the host writes; NULL: no layer inputs */
    uint16_t *live;         /* [n_live] values written before `cut` and read after it */
    ag_stage *stages;       /* stages of the first operations; NULL until ag_find_stages() */
    uint32_t n_stages, n_in_stages; /* n_in_stages: operations in stages */
    uint32_t n_layers, n_live, n_ops, n_values, n_weights, n_attend, n_recurrent, n_route;
    uint16_t stream; /* the residual stream: holds embeddings at first */
    uint16_t hidden; /* the result: rows after the last norm */
    uint16_t logits; /* written by the operations from `head` on; not in the workspace */
    uint32_t cut;    /* first operation after the last one that writes caches or states */
    uint32_t head;
    uint32_t cols; /* columns of the workspace */
} ag_program;

/* Frees a program; p may be NULL. */
void ag_program_destroy(ag_program *p);
/* Returns the index of the NORM that can be fused with ADD number i: it norms the sum into another
 * value and follows at once or after a SCALE. 0 if there is none. */
uint32_t ag_program_norm_of_sum(const ag_program *p, uint32_t i);
/* Returns whether PRODUCTS number i are two and the next operation is their GATE, by SiLU or GELU.
 */
bool ag_program_gates_products(const ag_program *p, uint32_t i);
/* Returns the name of a code, such as "PRODUCTS", a static string. */
const char *ag_op_code_name(ag_op_code code);
/* Writes operation number i as a line without a newline: "12  3  PRODUCTS wq,wk,wv  x[64] -> q[64]
 * k[32] v[32]  q4_0". Returns its length as snprintf() does. types: the types of the operation's
 * weights, shown once if they are equal; NULL: not shown. */
int ag_program_line(const ag_program *p, uint32_t i, const ag_dtype types[AG_OP_VALUES], char *line,
                    size_t cap);

#endif
