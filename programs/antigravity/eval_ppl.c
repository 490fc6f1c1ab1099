/* SPDX-License-Identifier: Apache-2.0 */
/* Perplexity: exp of the mean negative log-likelihood of the tokens of a text. */
#include "command.h"
#include "engine.h"
#include "eval.h"
#include "interrupt.h"
#include "json_out.h"
#include "output.h"
#include "progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct ppl {
    const eval_options *o;
    engine engine;
    prompt text;   /* its ids are without BOS */
    ag_ids bos;    /* what each window begins with */
    size_t window; /* tokens of a window, BOS included */
    size_t n_windows;
    double *nll; /* of each token predicted so far */
    size_t n_nll;
    /* The window being scored. */
    const int32_t *ids;
    size_t n_ids, done_before, total;
} ppl;

typedef struct summary {
    double mean, error; /* standard error of the mean; 0 for a single token */
} summary;

/* -log softmax(logits)[id], in double. */
static double negative_log_likelihood(const float *logits, size_t n, int32_t id) {
    double highest = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        if ((double)logits[i] > highest) highest = (double)logits[i];
    for (size_t i = 0; i < n; i++) sum += exp((double)logits[i] - highest);
    return highest + log(sum) - (double)logits[id];
}

static bool on_logits(void *user, size_t i, const float *logits) {
    ppl *p = user;
    if (i + 1 < p->n_ids)
        p->nll[p->n_nll++] = negative_log_likelihood(logits, p->engine.info.n_vocab, p->ids[i + 1]);
    return progress_update(NULL, p->done_before + i + 1, p->total);
}

static summary summarise(const double *nll, size_t n) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += nll[i];
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) squares += (nll[i] - mean) * (nll[i] - mean);
    return (summary){mean, n > 1 ? sqrt(squares / (double)(n - 1) / (double)n) : 0};
}

/* Reads the text as ids and finds how many windows there are. */
static int prepare(ppl *p) {
    const eval_options *o = p->o;
    const engine *e = &p->engine;
    prompt_options plain = o->text;
    plain.no_bos = true;
    if (p->text.text && !e->tokenizer) {
        complain("%s holds no tokenizer.json: give --prompt-ids instead of a text", e->dir);
        return EXIT_USAGE;
    }
    int code = p->text.text ? prompt_encode(&p->text, &plain, e->tokenizer) : EXIT_DONE;
    if (code == EXIT_DONE) code = prompt_check_ids(&p->text, e->info.n_vocab);
    if (code != EXIT_DONE) return code;
    ag_error err;
    bool with_bos = p->text.text && !o->text.no_bos;
    if (with_bos && ag_tokenizer_encode(e->tokenizer, "", 0, AG_ENCODE_BOS, &p->bos, &err) != AG_OK)
        return complain_error(&err);
    p->window = context_length(&o->model, &e->info);
    if (p->window < p->bos.n + 2) {
        complain("--max-seq-len: a window of %zu tokens leaves nothing to predict", p->window);
        return EXIT_USAGE;
    }
    size_t step = p->window - p->bos.n;
    p->n_windows = (p->text.n + step - 1) / step;
    if (o->max_windows && o->max_windows < p->n_windows) p->n_windows = o->max_windows;
    if (p->n_windows * step < p->text.n) p->text.n = p->n_windows * step;
    if (p->text.n + p->bos.n < 2) {
        complain("%s: %zu tokens are too few, there is nothing to predict", p->text.source,
                 p->text.n);
        return EXIT_FAILED;
    }
    p->nll = malloc(p->text.n * sizeof *p->nll);
    return p->nll ? EXIT_DONE : complain_no_memory();
}

static int score_windows(ppl *p) {
    ag_error err;
    int32_t *window = malloc(p->window * sizeof *window);
    if (!window) return complain_no_memory();
    ag_status status = AG_OK;
    size_t n_bos = p->bos.n, step = p->window - n_bos;
    p->ids = window;
    p->total = p->text.n + p->n_windows * n_bos;
    if (n_bos) memcpy(window, p->bos.data, n_bos * sizeof *window);
    progress_begin("scoring");
    for (size_t at = 0; at < p->text.n && status == AG_OK; at += step) {
        size_t n = p->text.n - at < step ? p->text.n - at : step;
        memcpy(window + n_bos, p->text.ids + at, n * sizeof *window);
        p->n_ids = n_bos + n;
        ag_session_reset(p->engine.session);
        status = ag_session_score(p->engine.session, window, p->n_ids, on_logits, p, &err);
        p->done_before += p->n_ids;
    }
    progress_end();
    free(window);
    if (status == AG_OK && interrupted()) err.status = status = AG_CANCELLED;
    return status == AG_OK ? EXIT_DONE : complain_error(&err);
}

static json_t *list_nll(const ppl *p) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < p->n_nll; i++) {
        json_t *one = isfinite(p->nll[i]) ? json_real(p->nll[i]) : json_null();
        json_append(&list, one);
    }
    return list;
}

static json_t *finite_or_null(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static json_t *report_json(const ppl *p, summary s) {
    const model_options *m = &p->o->model;
    const json_field fields[] = {
        {"ppl", finite_or_null(exp(s.mean))},
        {"ppl_stderr", finite_or_null(exp(s.mean) * s.error)},
        {"mean_nll", finite_or_null(s.mean)},
        {"stderr", finite_or_null(s.error)},
        {"tokens", json_integer((json_int_t)p->n_nll)},
        {"windows", json_integer((json_int_t)p->n_windows)},
        {"window", json_integer((json_int_t)p->window)},
        {"bos", json_boolean((p->bos.n > 0))},
        {"model", json_text(p->engine.dir, strlen(p->engine.dir))},
        {"weights", json_string(ag_dtype_name(m->weights))},
        {"k_type", json_string(ag_dtype_name(m->k_type))},
        {"v_type", json_string(ag_dtype_name(m->v_type))},
        {"nll", list_nll(p)},
    };
    return json_object_of(fields, sizeof fields / sizeof fields[0]);
}

static int report(const ppl *p) {
    const model_options *m = &p->o->model;
    summary s = summarise(p->nll, p->n_nll);
    if (p->o->json) return json_print(report_json(p, s));
    printf("perplexity %.4f +- %.4f\n", exp(s.mean), exp(s.mean) * s.error);
    printf("mean nll   %.5f +- %.5f\n", s.mean, s.error);
    printf("tokens     %zu in %zu window%s of %zu, weights %s, cache %s,%s\n", p->n_nll,
           p->n_windows, p->n_windows == 1 ? "" : "s", p->window, ag_dtype_name(m->weights),
           ag_dtype_name(m->k_type), ag_dtype_name(m->v_type));
    return EXIT_DONE;
}

int eval_ppl(const eval_options *o) {
    ppl p = {.o = o};
    int code = prompt_read(&p.text, &o->text);
    if (code == EXIT_DONE) code = engine_inspect(&p.engine, &o->model);
    if (code == EXIT_DONE) code = prepare(&p);
    if (code == EXIT_DONE) code = engine_load(&p.engine, &o->model);
    if (code == EXIT_DONE) code = engine_start(&p.engine, &o->model, (uint32_t)p.window);
    if (code == EXIT_DONE) code = score_windows(&p);
    if (code == EXIT_DONE) code = report(&p);
    free(p.nll);
    ag_ids_free(&p.bos);
    prompt_free(&p.text);
    engine_close(&p.engine);
    return code;
}
