/* SPDX-License-Identifier: Apache-2.0 */
/* The public face of models: loading, inspecting, making up. */
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/buffer_ops.h"
#include "core/fail.h"
#include "formats/recognise.h"
#include "memory/galloc.h"
#include "models/llama_model.h"
#include "models/rope.h"
#include "models/shapes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

ag_model_params ag_model_defaults(void) { return (ag_model_params){.weights = AG_Q4_0}; }

static bool is_weight_type(ag_dtype t) {
    return t == AG_Q4_0 || t == AG_Q4_1 || t == AG_Q8_0 || t == AG_F16 || t == AG_BF16 ||
           t == AG_F32;
}

static ag_status check_params(const ag_model_params *params, ag_model_params *out, ag_error *err) {
    *out = params ? *params : ag_model_defaults();
    if (is_weight_type(out->weights)) return AG_OK;
    return AG_FAIL(err, UNSUPPORTED, "weights as %s; known: q4_0, q4_1, q8_0, f16, bf16, f32",
                   ag_dtype_name(out->weights));
}

static void describe_config(const ag_llama_config *c, ag_model_info *info) {
    *info = (ag_model_info){
        .n_layers = c->n_layers,
        .hidden_size = c->hidden_size,
        .intermediate_size = c->intermediate_size,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .n_vocab = c->vocab_size,
        .max_positions = c->max_position_embeddings,
        .rope_theta = (float)c->rope_theta,
        .norm_eps = c->rms_norm_eps,
        .tied = c->tie_word_embeddings,
        .bos_id = c->bos_id,
        .n_eos = c->n_eos,
    };
    snprintf(info->architecture, sizeof info->architecture, "%s", c->architecture);
    snprintf(info->rope_scaling, sizeof info->rope_scaling, "%s",
             ag_rope_type_name(c->rope_scaling.type));
    memcpy(info->eos_ids, c->eos_ids, sizeof info->eos_ids);
}

static void describe_files(const ag_llama_config *c, const ag_llama_census *census,
                           const ag_weight_files *files, ag_dtype want, ag_model_info *info) {
    info->tied = census->tied;
    info->n_parameters = ag_llama_parameters(c, census->tied);
    info->file_type = census->file_type;
    info->weight_type = want;
    info->weight_bytes = census->matrix_bytes + census->other_bytes;
    info->embedding_bytes = census->embedding->n_bytes;
    info->n_kept = census->n_kept;
    for (size_t i = 0; i < ag_weight_files_n_files(files); i++) {
        info->file_bytes += ag_weight_files_bytes(files, i);
    }
}

ag_status ag_model_plan(const ag_backend *be, const char *dir, const ag_model_params *params,
                        ag_model_info *out, ag_weights_plan *plan, ag_error *err) {
    ag_model_params p;
    AG_TRY(check_params(params, &p, err));
    AG_TRY(ag_recognise_model(dir, err));
    ag_llama_config config;
    AG_TRY(ag_llama_config_load(dir, &config, err));
    ag_weight_files *files;
    AG_TRY(ag_weight_files_open(dir, &files, err));
    ag_llama_census census;
    ag_status st = ag_llama_weights_survey(be, &config, files, p.weights, &census, err);
    if (st == AG_OK) {
        describe_config(&config, out);
        describe_files(&config, &census, files, p.weights, out);
        *plan = (ag_weights_plan){census.stored_bytes, census.largest};
    }
    ag_weight_files_destroy(files);
    return st;
}

ag_status ag_model_inspect(const char *dir, const ag_model_params *params, ag_model_info *out,
                           ag_error *err) {
    ag_weights_plan unused;
    return ag_model_plan(NULL, dir, params, out, &unused, err);
}

/* On the host, whatever computes: the buffer outlives the memory it came from. */
static ag_status make_inv_freq(ag_model *m, ag_error *err) {
    size_t n = m->config.head_dim / 2;
    ag_memory *host;
    AG_TRY(ag_galloc_create(&host, err));
    ag_status st = ag_tensor_alloc(&m->inv_freq, &m->inv_freq_owner, host, AG_USAGE_SCRATCH, AG_F32,
                                   ag_shape_1d(n), err);
    ag_galloc_destroy(host);
    if (st == AG_OK) ag_rope_inv_freq(&m->config, ag_tensor_f32(&m->inv_freq));
    return st;
}

/* What a user may not expect of the model that is about to be loaded. */
static void tell(const ag_model *m, const char *dir) {
    const ag_model_info *info = &m->info;
    if (info->n_kept) {
        ag_backend_log(m->backend, AG_LOG_WARN,
                       "%s: %u matrices keep the type %s of the file, not %s: their rows are no "
                       "multiple of %zu",
                       dir, info->n_kept, ag_dtype_name(info->file_type),
                       ag_dtype_name(info->weight_type), ag_dtype_block(info->weight_type));
    }
    if (m->config.sliding_window && m->config.sliding_window <= info->max_positions) {
        ag_backend_log(m->backend, AG_LOG_INFO,
                       "%s: a sliding window of %u tokens limits the context to as many", dir,
                       m->config.sliding_window);
    }
}

/* A device refuses the buffer that does not fit, which would be after most of the work. */
static ag_status check_room(const ag_model *m, const char *dir, uint64_t bytes, ag_error *err) {
    const ag_memory *mem = ag_backend_memory(m->backend);
    ag_memory_room room = {0};
    if (mem->ops->room) mem->ops->room(mem, &room);
    if (!room.bytes || bytes <= room.free) return AG_OK;
    return AG_FAIL(err, NOMEM,
                   "%s: %" PRIu64 " bytes of weights as %s do not fit, %s has %" PRIu64
                   " bytes free of %" PRIu64,
                   dir, bytes, ag_dtype_name(m->info.weight_type), room.name, room.free,
                   room.bytes);
}

static ag_status load_files(ag_model *m, const char *dir, const ag_model_params *params,
                            ag_error *err) {
    AG_TRY(ag_recognise_model(dir, err));
    AG_TRY(ag_llama_config_load(dir, &m->config, err));
    AG_TRY(ag_weight_files_open(dir, &m->files, err));
    ag_llama_census census;
    AG_TRY(
        ag_llama_weights_survey(m->backend, &m->config, m->files, params->weights, &census, err));
    describe_config(&m->config, &m->info);
    describe_files(&m->config, &census, m->files, params->weights, &m->info);
    tell(m, dir);
    AG_TRY(check_room(m, dir, census.stored_bytes, err));
    AG_TRY(ag_embedding_open(&m->embedding, m->files, census.embedding, m->config.vocab_size,
                             m->config.hidden_size, err));
    return ag_llama_weights_load(&m->weights, m->backend, &m->config, m->files, params, err);
}

/* The common end of making a model: *out receives it, or it is destroyed. */
static ag_status finish(ag_model *m, ag_status st, ag_model **out, ag_error *err) {
    if (st == AG_OK) st = make_inv_freq(m, err);
    if (st == AG_OK) {
        *out = m;
    } else {
        ag_model_destroy(m);
    }
    return st;
}

ag_status ag_model_load(ag_backend *be, const char *dir, const ag_model_params *params,
                        ag_model **out, ag_error *err) {
    *out = NULL;
    ag_model_params p;
    AG_TRY(check_params(params, &p, err));
    ag_model *m = ag_calloc(1, sizeof *m);
    if (!m) return AG_FAIL(err, NOMEM, "model");
    m->backend = be;
    return finish(m, load_files(m, dir, &p, err), out, err);
}

void ag_model_destroy(ag_model *m) {
    if (!m) return;
    ag_workspace_release(&m->workspace);
    ag_llama_decode_release(m);
    ag_llama_weights_release(&m->weights);
    ag_embedding_close(&m->embedding);
    ag_weight_files_destroy(m->files);
    ag_buffer_release(&m->inv_freq_owner);
    ag_free(m);
}

const ag_model_info *ag_model_get_info(const ag_model *m) { return &m->info; }

ag_status ag_model_embedding(ag_model *m, int32_t id, float *row, ag_error *err) {
    return ag_embedding_lookup(&m->embedding, row, &id, 1, err);
}

size_t ag_model_memory_bytes(const ag_model *m) { return m->weights.n_bytes; }

uint64_t ag_model_bytes_per_token(const ag_model *m) { return m->info.weight_bytes; }

ag_status ag_model_random(ag_backend *be, const ag_llama_config *config,
                          const ag_model_params *params, ag_model **out, ag_error *err) {
    *out = NULL;
    ag_model *m = ag_calloc(1, sizeof *m);
    if (!m) return AG_FAIL(err, NOMEM, "model");
    m->backend = be;
    m->config = *config;
    describe_config(config, &m->info);
    m->info.n_parameters = ag_llama_parameters(config, config->tie_word_embeddings);
    ag_status st =
        ag_embedding_open(&m->embedding, NULL, NULL, config->vocab_size, config->hidden_size, err);
    if (st == AG_OK) st = ag_llama_weights_random(&m->weights, be, &m->config, params, err);
    m->info.weight_type = m->info.file_type = params->weights;
    m->info.weight_bytes = m->weights.n_bytes;
    return finish(m, st, out, err);
}

ag_status ag_model_synthetic(ag_backend *be, const char *shape, const ag_model_params *params,
                             ag_model **out, ag_error *err) {
    *out = NULL;
    ag_model_params p;
    ag_llama_config config;
    AG_TRY(check_params(params, &p, err));
    AG_TRY(ag_shape_config(shape, &config, err));
    return ag_model_random(be, &config, &p, out, err);
}

ag_status ag_model_plan_synthetic(const ag_backend *be, const char *shape,
                                  const ag_model_params *params, ag_model_info *out,
                                  ag_weights_plan *plan, ag_error *err) {
    ag_model_params p;
    AG_TRY(check_params(params, &p, err));
    ag_llama_config config;
    AG_TRY(ag_shape_config(shape, &config, err));
    ag_llama_census census;
    ag_llama_weights_survey_random(be, &config, p.weights, &census);
    describe_config(&config, out);
    *plan = (ag_weights_plan){census.stored_bytes, census.largest};
    return AG_OK;
}
