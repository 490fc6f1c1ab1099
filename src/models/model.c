/* SPDX-License-Identifier: Apache-2.0 */
/* Public functions of models: load, inspect, make synthetic ones. */
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/buffer_ops.h"
#include "core/fail.h"
#include "formats/file_types.h"
#include "formats/gguf.h"
#include "memory/galloc.h"
#include "models/config.h"
#include "models/lower.h"
#include "models/model_impl.h"
#include "models/rope.h"
#include "models/rope_override.h"
#include "models/spec.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double MIX_BITS = 5.3; /* maximum mean bits of a weight in a mix */

ag_model_params ag_model_defaults(void) { return (ag_model_params){.weights = AG_WEIGHTS_AUTO}; }

static ag_status check_params(const ag_model_params *params, ag_model_params *out, ag_error *err) {
    *out = params ? *params : ag_model_defaults();
    AG_TRY(ag_tensor_types_check(out, err));
    if (out->weights == AG_WEIGHTS_AUTO || out->weights == AG_WEIGHTS_MIX) return AG_OK;
    if (ag_dtype_may_be(out->weights, AG_DTYPE_WEIGHT)) return AG_OK;
    char known[AG_DTYPE_LIST];
    return AG_FAIL(err, UNSUPPORTED, "weights cannot be %s; known: %s", ag_dtype_name(out->weights),
                   ag_dtype_list(AG_DTYPE_WEIGHT, known, sizeof known));
}

/* Resolves AG_WEIGHTS_AUTO: quantised weights of a file stay, other weights become a mix. Random
 * weights, which serve benchmarks, are of one type. */
static void choose_weights(const ag_weight_source *source, ag_model_params *params) {
    if (params->weights != AG_WEIGHTS_AUTO) return;
    params->weights = source ? AG_WEIGHTS_MIX : AG_Q4_0;
    for (size_t i = 0; source && i < ag_source_n_tensors(source); i++) {
        const ag_dtype type = ag_source_tensor_at(source, i)->dtype;
        if (type < AG_DTYPE_COUNT && ag_dtype_block(type) > 1) params->as_is = true;
    }
}

/* Lists the types of matrices, the most frequent first. */
static void set_types(const ag_weights_summary *summary, ag_model_info *info) {
    ag_type_share remaining[AG_DTYPE_COUNT];
    memcpy(remaining, summary->types, sizeof remaining);
    for (info->n_types = 0; info->n_types < AG_MAX_TYPE_SHARES; info->n_types++) {
        size_t max = 0;
        for (size_t i = 1; i < AG_DTYPE_COUNT; i++)
            if (remaining[i].values > remaining[max].values) max = i;
        if (!remaining[max].values) break;
        info->types[info->n_types] = remaining[max];
        remaining[max].values = 0;
    }
    info->weight_type = info->types[0].type;
}

/* Names the types of the file's weights: as general.file_type states it, else the most frequent. */
static void name_file_type(const ag_weight_source *source, ag_model_info *info) {
    const ag_gguf *header = source ? ag_gguf_source_header(source) : NULL;
    int64_t number = -1;
    if (header) ag_gguf_integer(header, "general.file_type", &number, NULL);
    const ag_file_type *stated = ag_file_type_numbered(number);
    snprintf(info->file_type_name, sizeof info->file_type_name, "%s",
             stated ? stated->name : ag_dtype_name(info->file_type));
}

static void describe_source(const ag_model_spec *spec, const ag_weights_summary *summary,
                            const ag_weight_source *source, const ag_model_params *params,
                            ag_model_info *info) {
    info->tied = summary->tied;
    info->n_parameters = ag_spec_parameters(spec, summary->tied);
    info->file_type = summary->file_type;
    info->as_is = params->as_is;
    info->mixed = !params->as_is && ag_weights_is_mix(params->weights);
    name_file_type(source, info);
    set_types(summary, info);
    info->weight_bytes = summary->matrix_bytes + summary->other_bytes;
    info->active_bytes = info->weight_bytes - summary->idle_bytes;
    info->embedding_bytes = summary->embedding->n_bytes;
    if (summary->layer_inputs) info->embedding_bytes += summary->layer_inputs->n_bytes;
    info->n_kept = summary->n_kept;
    for (size_t i = 0; i < ag_source_n_files(source); i++) {
        info->file_bytes += ag_source_file_bytes(source, i);
    }
}

static double bits_of_a_weight(const ag_weights_summary *summary) {
    double bytes = 0, values = 0;
    for (int t = 0; t < AG_DTYPE_COUNT; t++) {
        bytes += (double)summary->types[t].bytes;
        values += (double)summary->types[t].values;
    }
    return values > 0 ? 8 * bytes / values : 0;
}

/* Inspects weights. Applies every step of a mix that keeps the model within MIX_BITS. */
static ag_status inspect_weights(const ag_backend *be, ag_model_spec *spec,
                                 const ag_weight_source *source, ag_model_params *params,
                                 ag_weights_summary *summary, ag_error *err) {
    AG_TRY(ag_model_weights_inspect(be, spec, source, params, summary, err));
    if (params->weights != AG_WEIGHTS_MIX) return AG_OK;
    ag_model_params more = *params;
    ag_weights_summary wider;
    for (size_t i = 0; ag_weights_mix_add(i, &more.weights); i++) {
        AG_TRY(ag_model_weights_inspect(be, spec, source, &more, &wider, err));
        if (bits_of_a_weight(&wider) <= MIX_BITS) {
            params->weights = more.weights;
            *summary = wider;
        }
        more.weights = params->weights;
    }
    return AG_OK;
}

/* The same for random weights. */
static void inspect_random(const ag_backend *be, const ag_model_spec *spec, ag_model_params *params,
                           ag_weights_summary *summary) {
    choose_weights(NULL, params);
    ag_model_weights_inspect_random(be, spec, params, summary);
    if (params->weights != AG_WEIGHTS_MIX) return;
    ag_model_params more = *params;
    ag_weights_summary wider;
    for (size_t i = 0; ag_weights_mix_add(i, &more.weights); i++) {
        ag_model_weights_inspect_random(be, spec, &more, &wider);
        if (bits_of_a_weight(&wider) <= MIX_BITS) {
            params->weights = more.weights;
            *summary = wider;
        }
        more.weights = params->weights;
    }
}

ag_status ag_model_open(const ag_backend *be, const char *path, const ag_model_params *given,
                        ag_model_params *params, ag_weight_source **source, ag_model_spec *spec,
                        ag_weights_summary *summary, ag_model_info *info, ag_error *err) {
    *source = NULL;
    AG_TRY(check_params(given, params, err));
    AG_TRY(ag_source_open(path, source, err));
    /* the configuration of a GGUF file depends on its tensors */
    const bool tensors_first = ag_gguf_source_header(*source) != NULL;
    if (tensors_first) AG_TRY(ag_source_open_tensors(*source, err));
    AG_TRY(ag_spec_read(*source, spec, err));
    if (!tensors_first) AG_TRY(ag_source_open_tensors(*source, err));
    AG_TRY(ag_rope_override_apply(&params->rope, *source, spec, err));
    choose_weights(*source, params);
    AG_TRY(inspect_weights(be, spec, *source, params, summary, err));
    AG_TRY(ag_spec_describe(spec, info, err));
    describe_source(spec, summary, *source, params, info);
    return AG_OK;
}

ag_status ag_model_plan(const ag_backend *be, const char *path, const ag_model_params *params,
                        ag_model_info *out, ag_weights_plan *plan, ag_error *err) {
    ag_model_params p;
    ag_weight_source *source;
    ag_model_spec spec;
    ag_weights_summary summary;
    ag_status st = ag_model_open(be, path, params, &p, &source, &spec, &summary, out, err);
    if (st == AG_OK) *plan = (ag_weights_plan){summary.stored_bytes, summary.largest};
    ag_source_destroy(source);
    return st;
}

ag_status ag_model_inspect(const char *path, const ag_model_params *params, ag_model_info *out,
                           ag_error *err) {
    ag_weights_plan unused;
    return ag_model_plan(NULL, path, params, out, &unused, err);
}

/* Makes the rotary tables on the host. Their buffers outlive the memory that made them. */
static ag_status make_rope_tables(ag_model *m, ag_error *err) {
    ag_memory *host;
    AG_TRY(ag_galloc_create(&host, err));
    ag_status st = AG_OK;
    for (uint32_t i = 0; i < 2 * m->spec.n_ropes && st == AG_OK; i++) {
        const ag_rope_spec *rope = &m->spec.ropes[i / 2];
        ag_tensor *inv_freq = &m->inv_freq[i / 2][i % 2];
        st = ag_tensor_alloc(inv_freq, &m->inv_freq_owner[i / 2][i % 2], host, AG_USAGE_SCRATCH,
                             AG_F32, ag_shape_1d(rope->n_rotated / 2), err);
        if (st != AG_OK) break;
        ag_rope_inv_freq(rope, i % 2, ag_tensor_f32(inv_freq));
        if (!ag_spec_is_gguf(&m->spec) || i / 2) continue; /* the tensor divides the first table */
        st = ag_rope_divide(m->source, "rope_freqs.weight", ag_tensor_f32(inv_freq),
                            rope->n_rotated / 2, err);
    }
    ag_galloc_destroy(host);
    return st;
}

const ag_tensor *ag_model_rope(const ag_model *m, uint32_t layer, bool is_long, float *factor) {
    const uint32_t table = ag_spec_layer(&m->spec, layer)->rope;
    *factor = 1;
    if (table == AG_NO_ROPE) return NULL;
    if (m->spec.ropes[table].attention_factor != 0) *factor = m->spec.ropes[table].attention_factor;
    return &m->inv_freq[table][is_long];
}

/* Warns of matrices that keep the file's type. */
static void log_kept_types(const ag_model *m, const char *dir) {
    const ag_model_info *info = &m->info;
    if (info->n_kept) {
        ag_backend_log(m->backend, AG_LOG_WARN,
                       "%s: %u matrices keep the type %s of the file, not %s: their rows are not a "
                       "multiple of %zu",
                       dir, info->n_kept, ag_dtype_name(info->file_type),
                       ag_dtype_name(info->weight_type), ag_dtype_block(info->weight_type));
    }
}

/* Fails early if the weights do not fit the device's memory. */
static ag_status check_available(const ag_model *m, const char *dir, uint64_t bytes,
                                 ag_error *err) {
    const ag_memory *mem = ag_backend_memory(m->backend);
    ag_memory_available available = {0};
    if (mem->ops->available) mem->ops->available(mem, &available);
    if (!available.bytes || bytes <= available.free) return AG_OK;
    return AG_FAIL(err, NOMEM,
                   "%s: %" PRIu64 " bytes of weights as %s do not fit, %s has %" PRIu64
                   " bytes free of %" PRIu64,
                   dir, bytes, ag_dtype_name(m->info.weight_type), available.name, available.free,
                   available.bytes);
}

/* Opens the embedding tables. The scale of layer inputs includes 1 / sqrt(2), the factor of the sum
 * of their two terms. */
static ag_status open_tables(ag_model *m, const ag_source_tensor *embedding,
                             const ag_source_tensor *layer_inputs, ag_error *err) {
    const ag_model_spec *s = &m->spec;
    const ag_table_shape rows = {s->vocab_size, s->hidden_size, s->embedding_scale};
    const ag_table_shape inputs = {s->n_layer_inputs, (size_t)s->n_layers * s->layer_input,
                                   sqrtf((float)s->layer_input / 2)};
    AG_TRY(ag_embedding_open(&m->embedding, m->source, embedding, &rows, err));
    if (!s->layer_input) return AG_OK;
    return ag_embedding_open(&m->layer_inputs, m->source, layer_inputs, &inputs, err);
}

static ag_status load_source(ag_model *m, const char *path, const ag_model_params *params,
                             ag_error *err) {
    ag_weights_summary summary;
    ag_model_params p;
    AG_TRY(
        ag_model_open(m->backend, path, params, &p, &m->source, &m->spec, &summary, &m->info, err));
    log_kept_types(m, path);
    AG_TRY(check_available(m, path, summary.stored_bytes, err));
    AG_TRY(open_tables(m, summary.embedding, summary.layer_inputs, err));
    return ag_model_weights_load(&m->weights, m->backend, &m->spec, m->source, &summary, &p, err);
}

uint32_t ag_model_states(const ag_model *m, ag_state_layer *out) {
    uint32_t n = 0;
    for (uint32_t l = 0; l < m->spec.n_layers; l++) {
        n += ag_spec_state(&m->spec, ag_spec_layer(&m->spec, l), &out[n]);
    }
    return n;
}

/* Makes the weight of norms without weight: ones. */
static ag_status make_ones(ag_model *m, ag_error *err) {
    enum { MAX_HEAD_DIM = 1024 };
    float ones[MAX_HEAD_DIM];
    for (int i = 0; i < MAX_HEAD_DIM; i++) ones[i] = 1;
    for (uint32_t l = 0; l < m->spec.n_layers; l++) {
        const ag_layer_spec *kind = ag_spec_layer(&m->spec, l);
        if ((!kind->v_norm && !kind->v_from_k) || kind->shares_kv) continue;
        if (kind->head_dim > MAX_HEAD_DIM) {
            return AG_FAIL(err, UNSUPPORTED,
                           "norms of value heads of %u are not supported; at most %d",
                           kind->head_dim, MAX_HEAD_DIM);
        }
        if (!m->ones) {
            AG_TRY(ag_memory_alloc(ag_backend_memory(m->backend), sizeof ones, AG_USAGE_SCRATCH,
                                   &m->ones, err));
            AG_TRY(ag_buffer_upload(m->ones, 0, ones, sizeof ones, err));
        }
        AG_TRY(ag_tensor_make(&m->weights.layers[l].of[AG_LT_ONES], AG_F32,
                              ag_shape_1d(kind->head_dim), m->ones, 0, err));
    }
    return AG_OK;
}

/* Returns a tensor of a layer: of a table, the first. */
static const ag_tensor *weight_of(const ag_model *m, ag_weight_ref w) {
    if (!ag_is_expert_table(w.tensor)) return &m->weights.layers[w.layer].of[w.tensor];
    const uint32_t n = ag_spec_layer(&m->spec, w.layer)->experts.route.n_experts;
    return &m->weights.experts[w.layer][(w.tensor - AG_LT_EXPERT_GATE) * (size_t)n];
}

/* Makes the program, and binds its weights and the factors of the stream. */
static ag_status bind_program(ag_model *m, ag_error *err) {
    AG_TRY(ag_lower(&m->spec, &m->program, err));
    const ag_program *p = m->program;
    m->bound = ag_calloc(p->n_weights, sizeof *m->bound);
    if (!m->bound) return AG_FAIL(err, NOMEM, "weights of a program of %u layers", p->n_layers);
    for (uint32_t i = 0; i < p->n_weights; i++) {
        const ag_weight_ref w = p->weights[i];
        const bool is_last = w.layer == AG_MODEL_WEIGHT;
        const ag_tensor *ends[] = {
            [AG_MODEL_NORM] = &m->weights.norm, [AG_MODEL_HEAD] = &m->weights.lm_head};
        m->bound[i].tensor = is_last ? ends[w.tensor] : weight_of(m, w);
        if (is_last || w.tensor != AG_LT_OUT_SCALE) continue;
        AG_TRY(ag_take_error(
            m->backend,
            ag_read(m->backend, &m->bound[i].number, m->bound[i].tensor, sizeof m->bound[i].number),
            err));
    }
    return AG_OK;
}

/* Finds stages, for a backend that runs programs of stages. */
static ag_status find_stages(ag_model *m, ag_error *err) {
    ag_program *p = m->program;
    if (!m->backend->ops->run_program) return AG_OK;
    AG_TRY(ag_find_stages(p, err));
    if (ag_has_stages(p)) {
        m->step_seqs = ag_calloc(p->n_attend, sizeof *m->step_seqs);
        return m->step_seqs ? AG_OK
                            : AG_FAIL(err, NOMEM, "caches of a step of %u layers", p->n_layers);
    }
    char line[256];
    (void)ag_program_line(p, p->n_in_stages, NULL, line, sizeof line);
    ag_backend_log(m->backend, AG_LOG_DEBUG,
                   "decoding goes operation by operation: in no stage: %s", line);
    return AG_OK;
}

/* Finishes a model: moves it to *out, or destroys it after a failure. */
static ag_status finish_model(ag_model *m, ag_status st, ag_model **out, ag_error *err) {
    if (st == AG_OK) st = make_rope_tables(m, err);
    if (st == AG_OK) st = make_ones(m, err);
    if (st == AG_OK) st = bind_program(m, err);
    if (st == AG_OK) st = find_stages(m, err);
    if (st == AG_OK) {
        *out = m;
    } else {
        ag_model_destroy(m);
    }
    return st;
}

ag_status ag_model_load(ag_backend *be, const char *path, const ag_model_params *params,
                        ag_model **out, ag_error *err) {
    *out = NULL;
    ag_model *m = ag_calloc(1, sizeof *m);
    if (!m) return AG_FAIL(err, NOMEM, "model");
    m->backend = be;
    return finish_model(m, load_source(m, path, params, err), out, err);
}

void ag_model_destroy(ag_model *m) {
    if (!m) return;
    ag_workspace_release(&m->workspace);
    ag_program_destroy(m->program);
    ag_free(m->bound);
    ag_free(m->sequences);
    ag_free(m->growth);
    ag_buffer_release(&m->logit_rows_owner);
    ag_free(m->logit_row_users);
    ag_free(m->step_seqs);
    ag_model_weights_release(&m->weights);
    ag_embedding_close(&m->embedding);
    ag_embedding_close(&m->layer_inputs);
    ag_buffer_release(&m->ones);
    ag_source_destroy(m->source);
    for (int i = 0; i < 2 * AG_MAX_ROPES; i++) ag_buffer_release(&m->inv_freq_owner[i / 2][i % 2]);
    ag_free(m);
}

void ag_model_set_backend(ag_model *m, ag_backend *be) { m->backend = be; }

const ag_model_info *ag_model_get_info(const ag_model *m) { return &m->info; }

ag_status ag_model_embedding(ag_model *m, int32_t id, float *row, ag_error *err) {
    return ag_embedding_lookup(&m->embedding, row, &id, 1, err);
}

size_t ag_model_memory_bytes(const ag_model *m) { return m->weights.n_bytes; }

uint64_t ag_model_bytes_per_token(const ag_model *m) { return m->info.active_bytes; }

ag_status ag_model_random(ag_backend *be, const ag_model_spec *spec, const ag_model_params *params,
                          ag_model **out, ag_error *err) {
    *out = NULL;
    ag_model *m = ag_calloc(1, sizeof *m);
    if (!m) return AG_FAIL(err, NOMEM, "model");
    ag_model_params p = *params;
    m->backend = be;
    m->spec = *spec;
    ag_status st = ag_spec_describe(spec, &m->info, err);
    m->info.n_parameters = ag_spec_parameters(spec, spec->tie_word_embeddings);
    if (st == AG_OK) st = open_tables(m, NULL, NULL, err);
    ag_weights_summary summary;
    inspect_random(be, spec, &p, &summary);
    set_types(&summary, &m->info);
    m->info.mixed = ag_weights_is_mix(p.weights);
    if (st == AG_OK) st = ag_model_weights_random(&m->weights, be, &m->spec, &p, err);
    m->info.file_type = m->info.weight_type;
    name_file_type(NULL, &m->info);
    m->info.weight_bytes = m->weights.n_bytes;
    m->info.active_bytes = m->weights.n_bytes - summary.idle_bytes;
    return finish_model(m, st, out, err);
}

ag_status ag_model_synthetic(ag_backend *be, const char *shape, const ag_model_params *params,
                             ag_model **out, ag_error *err) {
    *out = NULL;
    ag_model_params p;
    ag_model_spec spec;
    AG_TRY(check_params(params, &p, err));
    AG_TRY(ag_shape_spec(shape, &spec, err));
    return ag_model_random(be, &spec, &p, out, err);
}

ag_status ag_model_plan_synthetic(const ag_backend *be, const char *shape,
                                  const ag_model_params *params, ag_model_info *out,
                                  ag_weights_plan *plan, ag_error *err) {
    ag_model_params p;
    AG_TRY(check_params(params, &p, err));
    ag_model_spec spec;
    AG_TRY(ag_shape_spec(shape, &spec, err));
    ag_weights_summary summary;
    inspect_random(be, &spec, &p, &summary);
    AG_TRY(ag_spec_describe(&spec, out, err));
    set_types(&summary, out);
    out->mixed = ag_weights_is_mix(p.weights);
    out->weight_bytes = summary.matrix_bytes + summary.other_bytes;
    out->active_bytes = out->weight_bytes - summary.idle_bytes;
    *plan = (ag_weights_plan){summary.stored_bytes, summary.largest};
    return AG_OK;
}
