/* SPDX-License-Identifier: Apache-2.0 */
/* Divides attention among threads. A tile of query rows processes a KV head's slots span by span.
 * The partial results of the spans are merged in order, by the thread of the tile, or, if there are
 * too few tiles, by the thread that finishes a tile's last span. Spans and their order are fixed,
 * so the result does not depend on the number of threads.
 *
 * Attention weights need a query's sum. The scores of the keys are therefore computed a second
 * time, or, for the largest weights, stored by the thread of the tile. */
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kv_head.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "core/scratch.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum {
    TILE_QUERIES = 64,
    ITEMS_A_THREAD = 8,           /* enough to balance threads */
    MAX_PARTIAL_BYTES = 32 << 20, /* all spans; above it, one thread does a whole tile */
    MAX_KEPT_BYTES = 1 << 20,     /* scores of a thread's tile: about the size of L2 */
    SPAN_BLOCKS = AG_ATTENTION_SPAN / AG_KV_BLOCK,
};

/* The work of one sequence. A cell is a tile of rows and a KV head. */
typedef struct seq_work {
    const ag_attention_seq *seq;
    const unsigned char **blocks; /* [kv_heads][n_blocks] base address of each */
    size_t n_blocks;              /* blocks of the longest head */
    size_t group, tile_rows, n_tiles, n_cells;
    size_t first_span;    /* first span that any row attends to, over all heads */
    size_t n_spans;       /* from first_span to the end of the longest head */
    size_t first_item;    /* items: cells, or spans of cells */
    float *partials;      /* [cells][spans] if the spans are split over threads */
    atomic_uint *pending; /* [cells] unfinished spans */
    size_t n_scored;      /* the last rows, whose weights are needed */
    float *scored;        /* [kv_heads][2][n_scored * group] max and sum of these rows */
    size_t first_score_item;
    size_t n_kept;      /* spans of the longest head whose scores a thread stores */
    float *max_weights; /* [threads][kv_heads][slots of these spans] largest weights of its tiles */
} seq_work;

typedef struct attention_job {
    const ag_cpu_backend *cpu;
    float *out;
    const float *q;
    const ag_attention_params *params;
    bool split;
    size_t n_heads, head_dim, n_seqs;
    size_t n_items, n_score_items, n_cells;
    size_t queries;   /* queries of the largest tile */
    size_t kept_span; /* floats of a span's stored scores */
    size_t n_kept;    /* spans whose scores a thread can store */
    seq_work *works;
} attention_job;

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }
static size_t up_64(size_t bytes) { return (bytes + 63) / 64 * 64; }
static size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

/* ---- partial results in memory ---- */

static size_t partial_floats(const attention_job *job) {
    return job->queries * (2 + ag_cpu_value_stride(job->head_dim));
}

static ag_cpu_partial partial_in(const attention_job *job, float *p) {
    return (ag_cpu_partial){
        .values = p,
        .max = p + job->queries * ag_cpu_value_stride(job->head_dim),
        .sum = p + job->queries * (1 + ag_cpu_value_stride(job->head_dim)),
    };
}

static size_t partial_bytes(const attention_job *job) {
    return up_64(partial_floats(job) * sizeof(float));
}

/* Returns partial i of a thread. Its scratch has two partials, stored scores and the kernel's own.
 */
static ag_cpu_partial thread_partial(const attention_job *job, uint32_t thread, size_t i) {
    unsigned char *scratch = ag_cpu_thread_scratch(job->cpu, thread);
    return partial_in(job, (float *)(void *)(scratch + i * partial_bytes(job)));
}

static size_t kept_bytes(const attention_job *job) {
    return up_64(job->n_kept * job->kept_span * sizeof(float));
}

static float *kept_scores(const attention_job *job, uint32_t thread, size_t span) {
    unsigned char *scratch = ag_cpu_thread_scratch(job->cpu, thread);
    return (float *)(void *)(scratch + 2 * partial_bytes(job)) + span * job->kept_span;
}

static void *kernel_scratch(const attention_job *job, uint32_t thread) {
    unsigned char *scratch = ag_cpu_thread_scratch(job->cpu, thread);
    return scratch + 2 * partial_bytes(job) + kept_bytes(job);
}

/* ---- a cell ---- */

typedef struct cell {
    const seq_work *work;
    size_t head, row0; /* row0: row of the sequence */
    ag_cpu_queries queries;
    ag_cpu_kv_head kv;
} cell;

static cell make_cell(const attention_job *job, const seq_work *work, size_t head, size_t row0,
                      size_t n_rows) {
    const size_t row_stride = job->n_heads * job->head_dim;
    const size_t at = (work->seq->row0 + row0) * row_stride + head * work->group * job->head_dim;
    const uint32_t *from = work->seq->visible_from;
    return (cell){
        .work = work,
        .head = head,
        .row0 = row0,
        .queries = {.q = job->q + at,
                    .row_stride = row_stride,
                    .visible_until = work->seq->visible_until + row0,
                    .visible_from = from ? from + row0 : NULL,
                    .n_rows = (uint32_t)n_rows,
                    .group = (uint32_t)work->group,
                    .score_max = work->seq->score_max,
                    .params = *job->params},
        .kv = kv_head_of(&work->seq->kv, head, work->blocks, work->n_blocks),
    };
}

/* Returns cell i. The tiles of a head are adjacent so that its slots stay in a cache. The last
 * tiles, which attend to the most slots, come first. */
static cell cell_of(const attention_job *job, const seq_work *work, size_t i) {
    const size_t tile = work->n_tiles - 1 - i % work->n_tiles, row0 = tile * work->tile_rows;
    const size_t n_rows = min_size(work->tile_rows, work->seq->n_rows - row0);
    return make_cell(job, work, i / work->n_tiles, row0, n_rows);
}

static size_t n_queries(const cell *c) { return (size_t)c->queries.n_rows * c->queries.group; }

/* Adds the logits of sinks to the sums. The weights of slots become smaller. */
static void add_sinks(const attention_job *job, const cell *c, const ag_cpu_partial *p) {
    const size_t stride = ag_cpu_value_stride(job->head_dim), group = c->work->group;
    const float *sinks = job->params->sinks ? ag_tensor_data(job->params->sinks) : NULL;
    for (size_t i = 0; sinks && i < n_queries(c); i++) {
        const float sink = sinks[c->head * group + i % group];
        const float max = fmaxf(p->max[i], sink), factor = expf(p->max[i] - max);
        float *values = p->values + i * stride;
        for (size_t k = 0; k < job->head_dim && factor != 1; k++) values[k] *= factor;
        p->sum[i] = p->sum[i] * factor + expf(sink - max);
        p->max[i] = max;
    }
}

/* Writes the output, which is the weighted sum divided by the sum, and saves max and sum for the
 * scores. */
static void finish_cell(const attention_job *job, const cell *c, const ag_cpu_partial *p) {
    const seq_work *work = c->work;
    const size_t d = job->head_dim, stride = ag_cpu_value_stride(d), group = work->group;
    const size_t first_scored = work->seq->n_rows - work->n_scored;
    float *max = work->scored + c->head * 2 * work->n_scored * group;
    float *sum = max + work->n_scored * group;
    add_sinks(job, c, p);
    for (size_t i = 0; i < n_queries(c); i++) {
        const size_t row = c->row0 + i / group;
        const size_t at = (work->seq->row0 + row) * job->n_heads + c->head * group + i % group;
        const float *values = p->values + i * stride;
        const float factor = p->sum[i] == 0 ? 0 : 1 / p->sum[i];
        float *out = job->out + at * d;
        for (size_t k = 0; k < d; k++) out[k] = values[k] * factor;
        if (row < first_scored) continue;
        max[(row - first_scored) * group + i % group] = p->max[i];
        sum[(row - first_scored) * group + i % group] = p->sum[i];
    }
}

/* Finds spans [*first, *end) with all slots that a cell's rows attend to. If the rows attend from
 * position 0 on, *end is the head's end: invisible spans cost little there. */
static void spans_of(const cell *c, size_t *first, size_t *end) {
    const ag_cpu_queries *q = &c->queries;
    *first = 0;
    *end = SIZE_MAX;
    if (!q->visible_from) return;
    const uint32_t until = q->visible_until[q->n_rows - 1];
    *first = kv_head_block_from(&c->kv, q->visible_from[0]) / SPAN_BLOCKS;
    if (until < UINT32_MAX) *end = kv_head_block_from(&c->kv, until + 1) / SPAN_BLOCKS + 1;
}

/* Returns how many slots of a head need weights. */
static uint32_t scored_slots(const seq_work *work, size_t head) {
    const ag_attention_seq *seq = work->seq;
    const uint32_t n = seq->kv.n_slots[head];
    return seq->score_until && seq->score_until[head] < n ? seq->score_until[head] : n;
}

static size_t kept_slots(const seq_work *work) { return work->n_kept * AG_ATTENTION_SPAN; }

static float *max_weights_of(const seq_work *work, size_t thread, size_t head) {
    return work->max_weights + (thread * work->seq->kv.n_kv_heads + head) * kept_slots(work);
}

/* Returns the number of spans of a cell whose scores its thread stores. */
static size_t spans_to_keep(const cell *c) {
    return c->work->n_kept ? ceil_div(scored_slots(c->work, c->head), AG_ATTENTION_SPAN) : 0;
}

/* Updates the thread's largest weights with those of one cell. */
static void raise_max_weights(const attention_job *job, cell c, const ag_cpu_partial *all,
                              size_t first, size_t end, uint32_t thread) {
    c.kv.n_slots = scored_slots(c.work, c.head);
    for (size_t s = first; s < end; s++) {
        job->cpu->kernels.attention_scores(max_weights_of(c.work, thread, c.head), &c.queries,
                                           &c.kv, (uint32_t)(s * AG_ATTENTION_SPAN), all->max,
                                           all->sum, kept_scores(job, thread, s),
                                           kernel_scratch(job, thread));
    }
}

static void attend_cell(const attention_job *job, const seq_work *work, size_t i, uint32_t thread) {
    const ag_cpu_kernels *k = &job->cpu->kernels;
    const cell c = cell_of(job, work, i);
    const ag_cpu_partial all = thread_partial(job, thread, 0), one = thread_partial(job, thread, 1);
    const size_t n_kept = spans_to_keep(&c);
    size_t first, end;
    spans_of(&c, &first, &end);
    end = min_size(end, ceil_div(c.kv.n_slots, AG_ATTENTION_SPAN));
    for (size_t s = first; s == first || s < end; s++) {
        ag_cpu_partial span = s == first ? all : one;
        span.kept = s < n_kept ? kept_scores(job, thread, s) : NULL;
        k->attention(&span, &c.queries, &c.kv, (uint32_t)(s * AG_ATTENTION_SPAN),
                     kernel_scratch(job, thread));
        if (s > first) k->attention_merge(&all, &span, n_queries(&c), job->head_dim);
    }
    finish_cell(job, &c, &all);
    raise_max_weights(job, c, &all, first, min_size(n_kept, end), thread);
}

static ag_cpu_partial span_partial(const attention_job *job, const seq_work *work, size_t i,
                                   size_t span) {
    const size_t stride = partial_bytes(job) / sizeof(float);
    const size_t at = i * work->n_spans + span - work->first_span;
    return partial_in(job, work->partials + at * stride);
}

/* Attends to one span of a cell. The thread that finishes the cell's last span merges all. */
static void attend_span(const attention_job *job, const seq_work *work, size_t item,
                        size_t n_following, uint32_t thread) {
    const ag_cpu_kernels *k = &job->cpu->kernels;
    const size_t i = item / work->n_spans, span = work->first_span + item % work->n_spans;
    const size_t fetch_end = (span + 1 + n_following) * AG_ATTENTION_SPAN;
    cell c = cell_of(job, work, i);
    c.kv.fetch_end = (uint32_t)min_size(c.kv.n_slots, fetch_end);
    const ag_cpu_partial p = span_partial(job, work, i, span);
    const uint32_t slot0 = (uint32_t)(span * AG_ATTENTION_SPAN);
    k->attention(&p, &c.queries, &c.kv, slot0, kernel_scratch(job, thread));
    if (atomic_fetch_sub_explicit(&work->pending[i], 1, memory_order_acq_rel) != 1) return;
    size_t first, end;
    spans_of(&c, &first, &end);
    end = min_size(end, work->first_span + work->n_spans);
    first = min_size(first, work->first_span + work->n_spans - 1);
    const ag_cpu_partial all = span_partial(job, work, i, first);
    for (size_t s = first + 1; s < end; s++) {
        const ag_cpu_partial next = span_partial(job, work, i, s);
        k->attention_merge(&all, &next, n_queries(&c), job->head_dim);
    }
    finish_cell(job, &c, &all);
}

static void attend_items(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const attention_job *job = ctx;
    size_t s = 0;
    for (size_t item = begin; item < end; item++) {
        while (s + 1 < job->n_seqs && item >= job->works[s + 1].first_item) s++;
        const seq_work *work = &job->works[s];
        const size_t i = item - work->first_item;
        if (job->split) attend_span(job, work, i, end - item - 1, thread);
        else attend_cell(job, work, i, thread);
    }
}

/* ---- the weights, once a query's sum is known ---- */

/* Adds the weights of one span of a KV head, for all scored rows in order, so that the sums do not
 * depend on the number of threads. */
static void score_span(const attention_job *job, const seq_work *work, size_t i, uint32_t thread) {
    const ag_attention_seq *seq = work->seq;
    const size_t head = i / work->n_spans;
    const size_t slot0 = (work->first_span + i % work->n_spans) * AG_ATTENTION_SPAN;
    const size_t queries = work->n_scored * work->group;
    if (slot0 >= scored_slots(work, head)) return;
    const float *max = work->scored + head * 2 * queries, *sum = max + queries;
    for (size_t row = 0; row < work->n_scored; row += work->tile_rows) {
        const size_t n_rows = min_size(work->tile_rows, work->n_scored - row);
        cell c = make_cell(job, work, head, seq->n_rows - work->n_scored + row, n_rows);
        c.kv.n_slots = scored_slots(work, head);
        job->cpu->kernels.attention_scores(
            seq->scores + head * seq->score_stride, &c.queries, &c.kv, (uint32_t)slot0,
            max + row * work->group, sum + row * work->group, NULL, kernel_scratch(job, thread));
    }
}

/* Reduces the threads' largest weights to the result. */
static void reduce_max_weights(const attention_job *job, const seq_work *work) {
    const ag_attention_seq *seq = work->seq;
    for (size_t h = 0; h < seq->kv.n_kv_heads && work->n_kept; h++) {
        float *scores = seq->scores + h * seq->score_stride;
        for (size_t t = 0; t < ag_pool_threads(job->cpu->pool); t++) {
            const float *max_weights = max_weights_of(work, t, h);
            for (size_t s = 0; s < scored_slots(work, h); s++)
                if (max_weights[s] > scores[s]) scores[s] = max_weights[s];
        }
    }
}

static void score_items(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const attention_job *job = ctx;
    size_t s = 0;
    for (size_t item = begin; item < end; item++) {
        while (s + 1 < job->n_seqs && item >= job->works[s + 1].first_score_item) s++;
        score_span(job, &job->works[s], item - job->works[s].first_score_item, thread);
    }
}

/* ---- dividing the work ---- */

static seq_work work_of(const attention_job *job, const ag_attention_seq *seq) {
    seq_work p = {.seq = seq, .group = job->n_heads / seq->kv.n_kv_heads};
    const ag_cpu_kernels *kernels = &job->cpu->kernels;
    const bool few = seq->n_rows <= AG_CPU_BATCH_INVARIANT_ROWS && kernels->attention_few;
    const uint32_t wanted = few ? kernels->attention_few : kernels->attention_queries;
    const size_t tile = wanted ? wanted : TILE_QUERIES;
    p.tile_rows = p.group < tile ? tile / p.group : 1;
    p.n_tiles = ceil_div(seq->n_rows, p.tile_rows);
    p.n_cells = p.n_tiles * seq->kv.n_kv_heads;
    const size_t most_slots = ag_kv_view_max_slots(&seq->kv);
    p.n_blocks = ceil_div(most_slots, AG_KV_BLOCK);
    p.n_spans = ceil_div(most_slots, AG_ATTENTION_SPAN);
    if (!p.n_spans) p.n_spans = 1;
    if (seq->scores && seq->score_row0 < seq->n_rows) p.n_scored = seq->n_rows - seq->score_row0;
    return p;
}

/* Returns whether threads share the spans of a cell, because there are too few cells. */
static bool must_split(const attention_job *job, const ag_attention_seq *seqs) {
    size_t n_partials = 0;
    for (size_t s = 0; s < job->n_seqs; s++) {
        const seq_work p = work_of(job, &seqs[s]);
        n_partials += p.n_cells * p.n_spans;
    }
    const size_t n_threads = ag_pool_threads(job->cpu->pool);
    return n_threads > 1 && job->n_cells < n_threads * ITEMS_A_THREAD &&
           n_partials <= MAX_PARTIAL_BYTES / partial_bytes(job);
}

/* Returns the spans of the longest head that need weights, if the maximum over all rows is needed.
 */
static size_t spans_of_max_weights(const seq_work *work) {
    const ag_attention_seq *seq = work->seq;
    size_t n = 0;
    if (!seq->score_max || work->n_scored != seq->n_rows) return 0;
    for (size_t h = 0; h < seq->kv.n_kv_heads; h++) {
        const size_t spans = ceil_div(scored_slots(work, h), AG_ATTENTION_SPAN);
        if (spans > n) n = spans;
    }
    return n;
}

/* Sets the number of spans whose scores a thread stores: those that fit, over all sequences. */
static void choose_kept(attention_job *job, const ag_attention_seq *seqs) {
    const ag_cpu_kernels *kernels = &job->cpu->kernels;
    if (job->split || !kernels->kept_floats) return;
    job->kept_span = kernels->kept_floats((uint32_t)job->queries);
    for (size_t s = 0; s < job->n_seqs; s++) {
        const seq_work p = work_of(job, &seqs[s]);
        const size_t n = spans_of_max_weights(&p);
        if (n > job->n_kept && n * job->kept_span * sizeof(float) <= MAX_KEPT_BYTES)
            job->n_kept = n;
    }
}

static void map_blocks(const seq_work *work) {
    for (size_t h = 0; h < work->seq->kv.n_kv_heads; h++)
        ag_cpu_map_blocks(work->blocks + h * work->n_blocks, &work->seq->kv, h);
}

/* Skips the spans before the first row's first visible slot. */
static void skip_spans(seq_work *work) {
    const ag_attention_seq *seq = work->seq;
    if (!seq->visible_from || !seq->n_rows) return;
    size_t first = work->n_spans - 1;
    for (size_t h = 0; h < seq->kv.n_kv_heads; h++) {
        const ag_cpu_kv_head kv = kv_head_of(&seq->kv, h, work->blocks, work->n_blocks);
        first = min_size(first, kv_head_block_from(&kv, seq->visible_from[0]) / SPAN_BLOCKS);
    }
    work->first_span = first;
    work->n_spans -= first;
}

/* Lays out the seq_works of all sequences and their arrays from `base` on. Returns the bytes. With
 * base NULL it only counts. */
static size_t layout_scratch(attention_job *job, const ag_attention_seq *seqs,
                             unsigned char *base) {
    ag_scratch scratch = {.base = base};
    seq_work *works = ag_scratch_alloc(&scratch, job->n_seqs * sizeof *works);
    job->n_items = job->n_score_items = 0;
    for (size_t s = 0; s < job->n_seqs; s++) {
        seq_work p = work_of(job, &seqs[s]);
        const size_t n_heads = p.seq->kv.n_kv_heads;
        p.blocks = ag_scratch_alloc(&scratch, n_heads * p.n_blocks * sizeof *p.blocks);
        if (base) map_blocks(&p);
        if (base) skip_spans(&p);
        const size_t n_parts = p.n_cells * p.n_spans;
        p.first_item = job->n_items;
        p.first_score_item = job->n_score_items;
        p.scored = ag_scratch_alloc(&scratch, n_heads * 2 * p.n_scored * p.group * sizeof(float));
        p.n_kept = spans_of_max_weights(&p) <= job->n_kept ? spans_of_max_weights(&p) : 0;
        const size_t max_weights_bytes =
            ag_pool_threads(job->cpu->pool) * n_heads * kept_slots(&p) * sizeof(float);
        p.max_weights = ag_scratch_alloc(&scratch, max_weights_bytes);
        if (base) memset(p.max_weights, 0, max_weights_bytes);
        if (job->split) p.partials = ag_scratch_alloc(&scratch, n_parts * partial_bytes(job));
        if (job->split) p.pending = ag_scratch_alloc(&scratch, p.n_cells * sizeof *p.pending);
        job->n_items += job->split ? n_parts : p.n_cells;
        job->n_score_items += p.n_scored && !p.n_kept ? n_heads * p.n_spans : 0;
        if (!base) continue;
        for (size_t i = 0; job->split && i < p.n_cells; i++) {
            atomic_init(&p.pending[i], (unsigned)p.n_spans);
        }
        works[s] = p;
    }
    job->works = works;
    return scratch.used;
}

/* Computes the sizes of a call and grows the scratch memory. */
static ag_status size_scratch(attention_job *job, ag_cpu_backend *cpu,
                              const ag_attention_seq *seqs) {
    for (size_t s = 0; s < job->n_seqs; s++) {
        const seq_work p = work_of(job, &seqs[s]);
        const size_t queries = min_size(p.tile_rows, p.seq->n_rows) * p.group;
        if (queries > job->queries) job->queries = queries;
        job->n_cells += p.n_cells;
    }
    const uint32_t d = (uint32_t)job->head_dim;
    const size_t own = cpu->kernels.attention_scratch_bytes(d, (uint32_t)job->queries);
    const size_t min_bytes = 2 * partial_bytes(job) + own;
    job->split = must_split(job, seqs);
    choose_kept(job, seqs);
    if (!job->n_kept || ag_cpu_need_threads(cpu, min_bytes + kept_bytes(job)) != AG_OK) {
        job->n_kept = 0;
        AG_TRY(ag_cpu_need_threads(cpu, min_bytes));
    }
    return ag_cpu_need_shared(cpu, layout_scratch(job, seqs, NULL));
}

/* Grows the scratch memory for n_seqs sequences of n_rows each. */
static ag_status reserve_scratch(ag_cpu_backend *cpu, const ag_attention_limits *limits,
                                 ag_attention_seq *seqs, size_t n_seqs, size_t n_rows) {
    attention_job job = {.cpu = cpu,
                         .n_heads = limits->n_heads,
                         .head_dim = limits->head_dim,
                         .n_seqs = n_seqs,
                         .queries = 1};
    for (size_t i = 0; i < n_seqs; i++) seqs[i].n_rows = n_rows;
    return size_scratch(&job, cpu, seqs);
}

ag_status ag_cpu_attention_reserve(ag_backend *b, const ag_attention_limits *limits) {
    ag_cpu_backend *cpu = ag_cpu_of(b);
    const size_t n_seqs = limits->n_seqs ? limits->n_seqs : 1;
    float any = 0;
    ag_status st = AG_OK;
    uint32_t *n_slots = ag_malloc(limits->n_kv_heads * sizeof *n_slots);
    ag_attention_seq *seqs = ag_calloc(n_seqs, sizeof *seqs);
    if (!n_slots || !seqs) {
        st = AG_FAIL(&b->err, NOMEM, "attention scratch for %zu sequences", n_seqs);
        goto done;
    }
    for (uint32_t h = 0; h < limits->n_kv_heads; h++) n_slots[h] = limits->n_slots;
    for (size_t i = 0; i < n_seqs; i++) {
        seqs[i].kv = (ag_kv_view){
            .n_kv_heads = limits->n_kv_heads, .head_dim = limits->head_dim, .n_slots = n_slots};
        seqs[i].scores = &any; /* a call may need weights */
    }
    st = reserve_scratch(cpu, limits, seqs, 1, limits->n_rows);
    /* Several sequences may need less than one: their spans are not split over threads. */
    for (size_t n = 1; n <= limits->n_seqs && st == AG_OK; n++)
        st = reserve_scratch(cpu, limits, seqs, n, 1);
done:
    ag_free(n_slots);
    ag_free(seqs);
    return st;
}

ag_status ag_cpu_attention(ag_backend *b, ag_tensor *out, const ag_tensor *q,
                           const ag_attention_seq *seqs, size_t n_seqs,
                           const ag_attention_params *params) {
    ag_cpu_backend *cpu = ag_cpu_of(b);
    if (!n_seqs || !ag_shape_numel(&q->shape)) return AG_OK;
    if (n_seqs == 1 && !params->sinks && ag_cpu_scores_windows(seqs))
        return ag_cpu_window_scores(cpu, q, seqs, params);
    attention_job job = {.cpu = cpu,
                         .out = ag_tensor_data(out),
                         .q = ag_tensor_data(q),
                         .params = params,
                         .n_heads = q->shape.dim[1],
                         .head_dim = q->shape.dim[2],
                         .n_seqs = n_seqs,
                         .queries = 1};
    AG_TRY(size_scratch(&job, cpu, seqs));
    layout_scratch(&job, seqs, cpu->scratch.shared);
    const size_t n_chunks = (size_t)ag_pool_threads(cpu->pool) * ITEMS_A_THREAD;
    const size_t grain = job.split && job.n_items > n_chunks ? job.n_items / n_chunks : 1;
    ag_pool_run(cpu->pool, job.n_items, grain, attend_items, &job);
    for (size_t s = 0; s < n_seqs; s++) reduce_max_weights(&job, &job.works[s]);
    if (job.n_score_items) { ag_pool_run(cpu->pool, job.n_score_items, 1, score_items, &job); }
    return AG_OK;
}
