/* SPDX-License-Identifier: Apache-2.0 */
/* Map of a KV cache on a canvas: a line for each head, layer by layer, and a column for each position, or for
 * several if there are more positions than pixels. */

const MAX_HEIGHT = 420;

/* Returns layer and head of each line, from the top. */
function rowsOf(view) {
    const rows = [];
    view.layers.forEach((l, layer) => l.heads.forEach((runs, head) => rows.push({ layer, head, runs: view.runs[runs], window: l.window })));
    return rows;
}

function stateOf(view, row, position) {
    const { runs } = row;
    for (let i = 0; i < runs.length; i += 2) {
        if (position < runs[i]) break;
        if (position < runs[i] + runs[i + 1]) return position < view.protected ? 'sink' : 'held';
    }
    return row.window && position + row.window < view.tokens ? 'window' : 'evicted';
}

/* x and y are from 0 to 1. */
export function placeAt(view, x, y) {
    const rows = view ? rowsOf(view) : [];
    if (!rows.length || !view.tokens) return null;
    const row = Math.min(rows.length - 1, Math.max(0, Math.floor(y * rows.length)));
    const position = Math.min(view.tokens - 1, Math.max(0, Math.floor(x * view.tokens)));
    return { row, position, layer: rows[row].layer, head: rows[row].head, state: stateOf(view, rows[row], position) };
}

function drawRow(ctx, view, row, y, height, scale, colors) {
    const width = view.tokens * scale, from = row.window ? Math.max(0, view.tokens - row.window) : 0;
    ctx.fillStyle = colors.evicted;
    ctx.fillRect(0, y, width, height);
    if (from) {
        ctx.fillStyle = colors.window;
        ctx.fillRect(0, y, from * scale, height);
    }
    for (let i = 0; i < row.runs.length; i += 2) {
        const begin = row.runs[i], end = begin + row.runs[i + 1], sinks = Math.min(end, view.protected);
        if (begin < sinks) {
            ctx.fillStyle = colors.sink;
            ctx.fillRect(begin * scale, y, Math.max(1, (sinks - begin) * scale), height);
        }
        if (Math.max(begin, sinks) >= end) continue;
        ctx.fillStyle = colors.held;
        ctx.fillRect(Math.max(begin, sinks) * scale, y, (end - Math.max(begin, sinks)) * scale, height);
    }
}

export function drawMap(canvas, view, cursor) {
    const rows = view ? rowsOf(view) : [], ratio = window.devicePixelRatio || 1;
    const width = Math.max(1, Math.floor(canvas.parentElement.clientWidth * ratio));
    const step = Math.max(1, Math.min(6 * ratio, Math.floor(MAX_HEIGHT * ratio / Math.max(1, rows.length))));
    canvas.width = width;
    canvas.height = Math.max(24, step * rows.length);
    canvas.dataset.tokens = String(view?.tokens ?? 0);
    const ctx = canvas.getContext('2d');
    if (!rows.length || !view.tokens) return;
    const style = getComputedStyle(document.documentElement), colors = {};
    for (const name of ['held', 'sink', 'evicted', 'window', 'paper', 'bad']) colors[name] = style.getPropertyValue(`--${name}`).trim();
    rows.forEach((row, i) => {
        /* An empty line between layers, if there is a pixel for it. */
        const gap = step > 2 && row.head === 0 && i ? 1 : 0;
        drawRow(ctx, view, row, i * step + gap, step - gap, width / view.tokens, colors);
    });
    if (!cursor || cursor.row >= rows.length) return;
    ctx.strokeStyle = colors.bad;
    ctx.lineWidth = ratio;
    ctx.strokeRect(cursor.position * width / view.tokens - 1, cursor.row * step - 1, Math.max(3, width / view.tokens) + 2, step + 2);
}
