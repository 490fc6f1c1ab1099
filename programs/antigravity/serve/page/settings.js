/* SPDX-License-Identifier: Apache-2.0 */
/* The two dialogs: settings of requests, and the server's API key. */
import { apiKey, keyIsRemembered, setApiKey } from './api.js';
import { node } from './markdown.js';
import { NUMBERS } from './sampling.js';

const $ = (id) => document.getElementById(id);
const FIELDS = [...NUMBERS.map(([name]) => name), 'stop', 'schema', 'kv_type', 'kv_policy', 'kv_budget', 'thinking', 'tools'];
let store = null, afterKey = null;

/* The fields of JSON: what they are, and whether a value is of the expected type. */
const JSON_FIELDS = {
    tools: ['The tools are', 'an array', Array.isArray],
    schema: ['The schema is', 'an object', (v) => v !== null && typeof v === 'object' && !Array.isArray(v)],
};

function jsonError(name) {
    const text = $(`set-${name}`).value, [subject, type, isRight] = JSON_FIELDS[name];
    if (!text.trim()) return '';
    try {
        return isRight(JSON.parse(text)) ? '' : `${subject} not ${type}.`;
    } catch (e) {
        return `${subject} not valid JSON: ${e.message}`;
    }
}

/* Stores the valid fields. Returns the first that is not valid, or undefined. */
function keep() {
    let wrong;
    for (const name of FIELDS) {
        const field = $(`set-${name}`), error = JSON_FIELDS[name] ? jsonError(name) : '';
        if (JSON_FIELDS[name]) $(`${name}-error`).textContent = error;
        if (error || !field.checkValidity()) {
            wrong ??= field;
            continue;
        }
        if (field.value.trim()) store.settings[name] = field.value.trim();
        else delete store.settings[name];
    }
    store.saveSettings();
    return wrong;
}

function addNumbers() {
    $('sampling').append(...NUMBERS.flatMap(([name, label, min, max, step]) => [
        node('label', { for: `set-${name}` }, label),
        node('input', { id: `set-${name}`, type: 'number', min, max, step: Number.isInteger(step) ? step : 'any', inputmode: 'decimal' }),
    ]));
}

/* Shows the values that apply to empty fields. */
export function showDefaults(values) {
    for (const [name] of NUMBERS)
        if (Number.isFinite(values[name])) $(`set-${name}`).placeholder = String(values[name]);
}

/* Lists the eviction policies of the server. */
export function offerPolicies(names) {
    const select = $('set-kv_policy'), there = new Set([...select.options].map((o) => o.value));
    select.append(...names.filter((p) => !there.has(p)).map((p) => node('option', { value: p }, p)));
}

export function openSettings() {
    /* A policy that was chosen before stays in the list. */
    if (store.settings.kv_policy) offerPolicies([store.settings.kv_policy]);
    for (const name of FIELDS) $(`set-${name}`).value = store.settings[name] ?? '';
    $('set-key').value = apiKey();
    $('set-remember').checked = keyIsRemembered();
    for (const name of Object.keys(JSON_FIELDS)) $(`${name}-error`).textContent = '';
    $('settings').showModal();
}

function closeSettings() {
    const wrong = keep();
    if (wrong) {
        wrong.focus();
        wrong.reportValidity();
        return;
    }
    setApiKey($('set-key').value, $('set-remember').checked);
    $('settings').close();
}

export function askForKey(why, then) {
    afterKey = then;
    $('key-why').textContent = why;
    $('key-field').value = '';
    if (!$('key').open) $('key').showModal();
}

function useKey() {
    const key = $('key-field').value.trim();
    if (!key) return;
    setApiKey(key, $('key-remember').checked);
    $('key').close();
    const then = afterKey;
    afterKey = null;
    then?.();
}

export function setUpSettings(of) {
    store = of;
    addNumbers();
    $('settings').addEventListener('change', keep);
    $('close-settings').addEventListener('click', closeSettings);
    $('key-save').addEventListener('click', useKey);
    $('key-cancel').addEventListener('click', () => $('key').close());
    $('key-field').addEventListener('keydown', (e) => { if (e.key === 'Enter') useKey(); });
}
