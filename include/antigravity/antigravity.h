/* SPDX-License-Identifier: Apache-2.0 */
/* The public interface: models, sessions, text. Tensors and the cache by themselves: expert.h.
 *
 * Threads. A backend, the models on it, their sessions and caches are used by one thread at a time:
 * the library takes no lock for that. Two threads that share a model, each with a session of its
 * own, need one lock of the caller's around every call that is given any of these; two threads with
 * a backend and a model each need none. Any thread may call at any time:
 *  - ag_session_cancel(), also from a signal handler;
 *  - ag_model_get_info(), ag_session_model_info() and what a backend is called (ag_backend_name(),
 *    _describe(), _threads()): none of it changes after creation;
 *  - everything that is given a tokenizer; a decoder or a sampler belongs to one thread at a time;
 *  - everything that is given none of these: ag_model_inspect(), ag_tokenizer_load(), names of
 *    status and dtype values, ag_process_memory(), ag_allocation_count();
 *  - ag_buffer_retain() and ag_buffer_release(). */
#ifndef ANTIGRAVITY_ANTIGRAVITY_H
#define ANTIGRAVITY_ANTIGRAVITY_H

#include <antigravity/alloc.h>
#include <antigravity/backend.h>
#include <antigravity/chat.h>
#include <antigravity/constrain.h>
#include <antigravity/dtype.h>
#include <antigravity/eviction.h>
#include <antigravity/interrupt.h>
#include <antigravity/model.h>
#include <antigravity/plan.h>
#include <antigravity/process.h>
#include <antigravity/quantize.h>
#include <antigravity/sampler.h>
#include <antigravity/session.h>
#include <antigravity/status.h>
#include <antigravity/tokenizer.h>

#endif
