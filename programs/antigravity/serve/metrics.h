/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ANTIGRAVITY_SERVE_METRICS_H
#define ANTIGRAVITY_SERVE_METRICS_H

#include "route.h"

void reply_metrics(serve_call *call);

#endif
