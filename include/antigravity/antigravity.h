/* SPDX-License-Identifier: Apache-2.0 */
/* The public interface: models, sessions and text. expert.h adds tensors and the KV cache.
 *
 * Threads. One thread at a time may use a backend, its models, their sessions and their caches. The
 * library takes no lock for them. Two threads that share a model need a lock of the caller around
 * every call that takes one of these objects, even if each thread has its own session. Two threads
 * with separate backends need no lock. Any thread may call at any time:
 *  - ag_session_cancel(), also from a signal handler;
 *  - ag_model_get_info(), ag_session_model_info(), ag_backend_name(), ag_backend_describe() and
 *    ag_backend_threads(), whose results do not change after creation;
 *  - every function that takes a tokenizer (a decoder or sampler belongs to one thread at a time);
 *  - every function that takes none of these objects: ag_model_inspect(), ag_tokenizer_load(),
 *    names of status and dtype values, ag_process_memory(), ag_allocation_count();
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
