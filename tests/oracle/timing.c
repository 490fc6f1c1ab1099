/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle/oracle.h"
#include "platform/clock.h"

static void restore(oracle_run *run, const guarded *g) {
    ag_status st =
        ag_buffer_upload(g->buffer, g->t.offset, g->values, ag_tensor_bytes(&g->t), NULL);
    if (st != AG_OK) run->status = st;
}

/* Takes the time of the run that has ended; true if it was the last. */
static bool enough(oracle_run *run) {
    oracle_timing *t = run->timing;
    ag_status st = ag_sync(run->be);
    if (st != AG_OK) run->status = st;
    if (run->n_started > 1) t->seconds[t->n_runs++] = ag_now_s() - run->started_s;
    double total = 0;
    for (size_t i = 0; i < t->n_runs; i++) total += t->seconds[i];
    return run->status != AG_OK || t->n_runs == t->most_runs || total >= 10 * t->least_s ||
           (total >= t->least_s && t->n_runs >= t->least_runs);
}

bool oracle_again(oracle_run *run, const guarded *overwritten) {
    if (run->out_of_memory) return false;
    if (run->n_started && (!run->timing || enough(run))) return false;
    if (run->n_started++ && overwritten) restore(run, overwritten);
    if (run->timing) {
        if (run->timing->before) run->timing->before(run->timing->user);
        run->started_s = ag_now_s();
    }
    return run->status == AG_OK;
}
