/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the policy compactor with another program's random numbers and scale, for comparison. Reads
 * a prompt, evicts once and saves the cache. Standard input holds the prompt's ids in decimal. Used
 * by tools/kvpress_parity.py. */
#include <antigravity/antigravity.h>

#include <stdio.h>
#include <stdlib.h>

enum { SKETCH = 48 };

typedef struct prompt {
    int32_t *ids; /* owned */
    size_t n;
} prompt;

static bool read_ids(prompt *p) {
    size_t cap = 0;
    for (int id; scanf("%d", &id) == 1;) {
        if (p->n == cap) {
            cap = cap ? 2 * cap : 1024;
            int32_t *grown = realloc(p->ids, cap * sizeof *grown);
            if (!grown) return false;
            p->ids = grown;
        }
        p->ids[p->n++] = id;
    }
    return p->n > 0 && feof(stdin);
}

/* Reads [head_dim][SKETCH] float32; NULL if the file has another size. */
static float *read_sketch(const char *path, size_t head_dim) {
    const size_t n = head_dim * SKETCH;
    float *sketch = calloc(n + 1, sizeof *sketch);
    FILE *f = fopen(path, "rb");
    const bool fits = sketch && f && fread(sketch, sizeof *sketch, n + 1, f) == n;
    if (f) fclose(f);
    if (fits) return sketch;
    free(sketch);
    return NULL;
}

/* Returns float32 parameters without protection beyond the policy's own. */
static ag_session_params params_of(const prompt *p, const ag_compactor_params *own,
                                   uint32_t n_keep) {
    ag_session_params s = ag_session_defaults();
    s.max_seq_len = (uint32_t)p->n + 256;
    s.k_type = s.v_type = AG_F32;
    s.eviction = ag_eviction_defaults();
    s.eviction.policy = ag_eviction_policy_find("compactor");
    s.eviction.policy_params = own;
    s.eviction.budget_tokens = n_keep;
    s.eviction.protected_prefix = s.eviction.recent = s.eviction.slack = 0;
    s.eviction.prefill = AG_KV_PREFILL_WHOLE;
    return s;
}

static ag_status run(ag_model *model, const prompt *p, const ag_compactor_params *own,
                     uint32_t n_keep, const char *out, ag_error *err) {
    const ag_session_params params = params_of(p, own, n_keep);
    ag_session *session;
    ag_status st = ag_session_create(model, &params, &session, err);
    if (st == AG_OK) st = ag_session_prefill(session, p->ids, p->n, NULL, NULL, err);
    if (st == AG_OK) st = ag_session_save(session, out, NULL, p->ids, p->n, err);
    ag_session_destroy(session);
    return st;
}

int main(int argc, char **argv) {
    prompt p = {0};
    ag_model_params model_params = ag_model_defaults();
    ag_backend *backend = NULL;
    ag_model *model = NULL;
    float *sketch = NULL;
    ag_error err = {0};
    if (argc != 6) {
        fputs("compactor_slots MODEL N_KEEP SKETCH_FILE QUERY_SCALE OUT_CACHE < IDS\n", stderr);
        return 2;
    }
    const char *message = read_ids(&p) ? NULL : "standard input: token ids are wanted";
    model_params.weights = AG_F32;
    if (!message && (ag_backend_create(NULL, &backend, &err) ||
                     ag_model_load(backend, argv[1], &model_params, &model, &err)))
        message = err.msg;
    if (!message) {
        sketch = read_sketch(argv[3], ag_model_get_info(model)->head_dim);
        if (!sketch) message = "the sketch: [head_dim][48] of float32 are wanted";
    }
    const ag_compactor_params own = {.sketch = sketch, .query_scale = strtof(argv[4], NULL)};
    const uint32_t n_keep = (uint32_t)strtoul(argv[2], NULL, 10);
    if (!message && run(model, &p, &own, n_keep, argv[5], &err)) message = err.msg;
    if (message) fprintf(stderr, "compactor_slots: %s\n", message);
    free(sketch);
    free(p.ids);
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    return message ? 1 : 0;
}
