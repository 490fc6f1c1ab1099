/* SPDX-License-Identifier: Apache-2.0 */
/* The two dialogs: settings of requests, and the server's API key. */
import { apiKey, keyIsRemembered, setApiKey } from './api.js';
import { node } from './markdown.js';

const $ = (id) => document.getElementById(id);
const FIELDS = ['temperature', 'top_p', 'max_tokens', 'seed', 'kv_type', 'kv_policy', 'kv_budget', 'thinking', 'tools'];
let store = null, afterKey = null;

function toolsError(text) {
    if (!text.trim()) return '';
    try {
        return Array.isArray(JSON.parse(text)) ? '' : 'The tools must be an array.';
    } catch (e) {
        return `The tools are not valid JSON: ${e.message}`;
    }
}

function keep() {
    const wrong = toolsError($('set-tools').value);
    $('tools-error').textContent = wrong;
    for (const name of FIELDS) {
        const field = $(`set-${name}`);
        if ((name === 'tools' && wrong) || !field.checkValidity()) continue;
        if (field.value.trim()) store.settings[name] = field.value.trim();
        else delete store.settings[name];
    }
    store.saveSettings();
    return !wrong;
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
    $('tools-error').textContent = '';
    $('settings').showModal();
}

function closeSettings() {
    if (!keep()) {
        $('set-tools').focus();
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
    $('settings').addEventListener('change', keep);
    $('close-settings').addEventListener('click', closeSettings);
    $('key-save').addEventListener('click', useKey);
    $('key-cancel').addEventListener('click', () => $('key').close());
    $('key-field').addEventListener('keydown', (e) => { if (e.key === 'Enter') useKey(); });
}
