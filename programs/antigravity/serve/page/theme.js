/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the theme before anything is painted. */
'use strict';
try {
    const theme = localStorage.getItem('antigravity.theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {
    /* Without storage: the system's theme. */
}
