/* SPDX-License-Identifier: Apache-2.0 */
/* Converts Markdown to nodes of the document. The browser parses no markup from the text, loads no images, and links
 * may use http, https and mailto only. */

const MAX_DEPTH = 12;

export function node(name, attributes, ...children) {
    const e = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
        if (value === false || value === null || value === undefined) continue;
        if (key.startsWith('on')) e.addEventListener(key.slice(2), value);
        else e.setAttribute(key, value === true ? '' : value);
    }
    e.append(...children.filter((c) => c !== null && c !== undefined));
    return e;
}

/* ---- inline markup ---- */

function safeLink(target) {
    try {
        const url = new URL(target);
        return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : null;
    } catch {
        return null;
    }
}

function linkTo(target, children) {
    const href = safeLink(target);
    if (!href) return node('span', {}, ...children);
    return node('a', { href, target: '_blank', rel: 'noopener noreferrer nofollow', title: href }, ...children);
}

/* Parses "[text](target)" at `at`, after an optional "!". NULL: not a link. */
function readLink(text, at) {
    const close = text.indexOf('](', at + 1);
    const end = close < 0 ? -1 : text.indexOf(')', close + 2);
    if (end < 0 || close - at > 500 || end - close > 2000) return null;
    const target = text.slice(close + 2, end).trim().split(/\s/, 1)[0];
    return { label: text.slice(at + 1, close), target, end: end + 1 };
}

const PAIRS = [['**', 'strong'], ['__', 'strong'], ['~~', 's'], ['*', 'em'], ['_', 'em']];
const isWord = (c) => c !== undefined && /[\p{L}\p{N}]/u.test(c);

/* Returns the emphasis mark at `at` and the position of its closing mark, if any. */
function readPair(text, at, missing) {
    for (const [mark, name] of PAIRS) {
        if (!text.startsWith(mark, at)) continue;
        const next = text[at + mark.length];
        if (next === undefined || /\s/.test(next)) return null;
        if (mark[0] === '_' && isWord(text[at - 1])) return null;
        /* Without a closing mark later ones have none either, so search once in a line. */
        if (missing.has(mark)) return null;
        let end = text.indexOf(mark, at + mark.length + 1);
        while (end > 0 && (/\s/.test(text[end - 1]) || (mark[0] === '_' && isWord(text[end + mark.length]))))
            end = text.indexOf(mark, end + 1);
        if (end > 0) return { mark, name, end };
        missing.add(mark);
        return null;
    }
    return null;
}

function readCode(text, at) {
    let n = 1;
    while (text[at + n] === '`') n++;
    const end = text.indexOf('`'.repeat(n), at + n);
    return end < 0 ? null : { code: text.slice(at + n, end), end: end + n };
}

const URL_START = /^https?:\/\/[^\s<>"')\]]+/;

export function inline(text, depth = 0) {
    const out = [], missing = new Set();
    let plain = '', at = 0;
    const flush = () => { if (plain) out.push(document.createTextNode(plain)); plain = ''; };
    const put = (e, end) => { flush(); out.push(e); at = end; };
    while (at < text.length) {
        const c = text[at];
        let found = null;
        if (c === '\\' && /[!-/:-@[-`{-~]/.test(text[at + 1] || '')) {
            plain += text[at + 1];
            at += 2;
        } else if (c === '`' && (found = readCode(text, at))) {
            put(node('code', {}, found.code), found.end);
        } else if (c === '!' && text[at + 1] === '[' && (found = readLink(text, at + 1))) {
            put(linkTo(found.target, ['🖼 ' + (found.label || found.target)]), found.end);
        } else if (c === '[' && depth < MAX_DEPTH && (found = readLink(text, at))) {
            put(linkTo(found.target, inline(found.label, depth + 1)), found.end);
        } else if ('*_~'.includes(c) && depth < MAX_DEPTH && (found = readPair(text, at, missing))) {
            const inner = text.slice(at + found.mark.length, found.end);
            put(node(found.name, {}, ...inline(inner, depth + 1)), found.end + found.mark.length);
        } else if (c === 'h' && !isWord(text[at - 1]) && (found = URL_START.exec(text.slice(at, at + 2000)))) {
            put(linkTo(found[0], [found[0]]), at + found[0].length);
        } else {
            plain += c;
            at++;
        }
    }
    flush();
    return out;
}

/* ---- blocks ---- */

const FENCE = /^ {0,3}(```+|~~~+) *([\w+#.-]*)/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)]) +(.*)$/;
const HEADING = /^ {0,3}(#{1,6}) +(.*?) *#* *$/;
const RULE = /^ {0,3}([-*_])( *\1){2,} *$/;
const QUOTE = /^ {0,3}> ?/;
const TABLE_RULE = /^ *\|?[ :|-]*-[ :|-]*$/;

function codeBlock(code, language) {
    const copy = node('button', { type: 'button', onclick: () => navigator.clipboard?.writeText(code) }, 'Copy');
    copy.setAttribute('aria-label', 'Copy the code');
    return node('div', {},
        node('div', { class: 'code-head' }, node('span', {}, language || 'code'), copy),
        node('pre', { tabindex: '0' }, node('code', {}, code)));
}

function readFence(lines, at, found) {
    const [, mark, language] = found;
    const code = [];
    let i = at + 1;
    while (i < lines.length && !lines[i].trim().startsWith(mark)) code.push(lines[i++]);
    return { element: codeBlock(code.join('\n'), language), next: i + 1 };
}

const cellsOf = (line) => line.trim().replace(/^\|/, '').replace(/\|$/, '').split('|').slice(0, 100);

function readTable(lines, at) {
    const row = (name, line) => node('tr', {},
        ...cellsOf(line).map((c) => node(name, name === 'th' ? { scope: 'col' } : {}, ...inline(c.trim()))));
    const body = node('tbody', {});
    let i = at + 2;
    while (i < lines.length && lines[i].includes('|')) body.append(row('td', lines[i++]));
    return { element: node('table', {}, node('thead', {}, row('th', lines[at])), body), next: i };
}

/* Parses the items of a list. Indented lines below an item belong to it. */
function readList(lines, at, depth) {
    const first = ITEM.exec(lines[at]);
    const ordered = /\d/.test(first[2]);
    const list = node(ordered ? 'ol' : 'ul', ordered && parseInt(first[2], 10) !== 1 ? { start: parseInt(first[2], 10) } : {});
    let i = at;
    for (let found; i < lines.length && (found = ITEM.exec(lines[i])) && found[1].length <= first[1].length + 1;) {
        if (/\d/.test(found[2]) !== ordered) break;
        const own = [found[3]];
        for (i++; i < lines.length; i++) {
            const indent = lines[i].search(/\S/);
            if (indent < 0 ? !/^ +\S/.test(lines[i + 1] || '') : indent <= found[1].length + 1) break;
            own.push(indent < 0 ? '' : lines[i].slice(Math.min(indent, found[1].length + found[2].length + 1)));
        }
        list.append(node('li', {}, ...blocks(own, depth + 1, true)));
        while (i < lines.length && !lines[i].trim() && ITEM.test(lines[i + 1] || '')) i++;
    }
    return { element: list, next: i };
}

function readQuote(lines, at, depth) {
    const own = [];
    let i = at;
    while (i < lines.length && QUOTE.test(lines[i])) own.push(lines[i++].replace(QUOTE, ''));
    return { element: node('blockquote', {}, ...blocks(own, depth + 1)), next: i };
}

function readBlock(lines, i, depth) {
    const line = lines[i];
    let found;
    if ((found = FENCE.exec(line))) return readFence(lines, i, found);
    if ((found = HEADING.exec(line))) {
        /* The page itself uses the first three levels of headings. */
        const level = Math.min(6, found[1].length + 3);
        return { element: node('h' + level, {}, ...inline(found[2])), next: i + 1 };
    }
    if (RULE.test(line)) return { element: node('hr', {}), next: i + 1 };
    if (depth < MAX_DEPTH && QUOTE.test(line)) return readQuote(lines, i, depth);
    if (depth < MAX_DEPTH && ITEM.test(line)) return readList(lines, i, depth);
    if (line.includes('|') && TABLE_RULE.test(lines[i + 1] || '')) return readTable(lines, i);
    return null;
}

function withBreaks(lines) {
    const out = [];
    lines.forEach((line, i) => {
        if (i) out.push(node('br', {}));
        out.push(...inline(line.trim()));
    });
    return out;
}

function blocks(lines, depth = 0, tight = false) {
    const out = [];
    let paragraph = [];
    const flush = () => {
        if (paragraph.length) out.push(tight && !out.length ? node('span', {}, ...withBreaks(paragraph)) : node('p', {}, ...withBreaks(paragraph)));
        paragraph = [];
    };
    for (let i = 0; i < lines.length;) {
        const block = lines[i].trim() ? readBlock(lines, i, depth) : null;
        if (block) {
            flush();
            out.push(block.element);
            i = block.next;
            continue;
        }
        if (lines[i].trim()) paragraph.push(lines[i]);
        else flush();
        i++;
    }
    flush();
    return out;
}

export const markdown = (text) => blocks(text.replace(/\r\n?/g, '\n').split('\n'));
