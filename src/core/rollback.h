/* SPDX-License-Identifier: Apache-2.0 */
/* Number of tokens by which a sequence can always be truncated. */
#ifndef AG_CORE_ROLLBACK_H
#define AG_CORE_ROLLBACK_H

enum { AG_ROLLBACK = 64 }; /* counted from the furthest position that it has reached */

#endif
