/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of a request that the settings offer: name in the request, label, smallest and largest value, step. */
export const NUMBERS = [
    ['temperature', 'Temperature', 0, 1000, 0.05],
    ['top_k', 'Top k', 0, 1e9, 1],
    ['top_p', 'Top p', 0, 1, 0.01],
    ['min_p', 'Min p', 0, 1, 0.01],
    ['typical_p', 'Typical p', 0, 1, 0.01],
    ['top_n_sigma', 'Top n sigma', -1, 1000, 0.1],
    ['xtc_probability', 'XTC: probability', 0, 1, 0.05],
    ['xtc_threshold', 'XTC: threshold', 0, 1, 0.05],
    ['dynatemp_range', 'Dynamic temperature: range', 0, 1000, 0.05],
    ['dynatemp_exponent', 'Dynamic temperature: exponent', 0, 1000, 0.05],
    ['repeat_penalty', 'Repetition penalty', 0.01, 1000, 0.01],
    ['repeat_last_n', 'Tokens that the penalties cover', -1, 1e9, 1],
    ['presence_penalty', 'Presence penalty', -1000, 1000, 0.05],
    ['frequency_penalty', 'Frequency penalty', -1000, 1000, 0.05],
    ['dry_multiplier', 'DRY: multiplier', 0, 1000, 0.05],
    ['dry_base', 'DRY: base', 1, 1000, 0.05],
    ['dry_allowed_length', 'DRY: allowed length', 1, 1e9, 1],
    ['dry_penalty_last_n', 'DRY: tokens searched', -1, 1e9, 1],
    ['max_tokens', 'Maximum tokens of an answer', 1, 1e9, 1],
    ['seed', 'Seed', 0, Number.MAX_SAFE_INTEGER, 1],
];
