#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare sampling settings by 50 small Python functions that a model writes and whose unit tests are run.

    tools/serve_functions.py URL NAME --sampling A='{"temperature": 0.8}' --sampling B='{"temperature": 0.2}' [--seeds 10]

URL: a server with OpenAI's /v1/chat/completions. NAME: its model. Each setting is a JSON object whose members are added to the
requests. A function is asked for once with each seed, by --clients requests at a time; settings take turns, so that a change of
the machine's load meets all of them. The answer's first block of code, or the answer, runs with the tests of the function in a
process of its own, with at most 5 s of processor time, 512 MiB of addresses and empty files. It counts if every test holds.

Prints one JSON object for each setting: functions, answers, right ones, their percentage, the standard error of that
percentage over seeds, and answers that the limit of tokens ended. Exit status: 1 if a request failed."""
import argparse
import concurrent.futures
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import urllib.request

MAX_TOKENS = 320
CPU_SECONDS = 5
ADDRESS_BYTES = 512 << 20

# Signature, what the function does, and tests: expressions that must be true.
FUNCTIONS = (
    ("add(a, b)", "returns the sum of two numbers", "add(2, 3) == 5; add(-1, 1) == 0"),
    ("is_even(n)", "returns True if the integer n is even", "is_even(4); not is_even(7); is_even(0)"),
    ("factorial(n)", "returns n factorial; the factorial of 0 is 1", "factorial(5) == 120; factorial(0) == 1"),
    ("fibonacci(n)", "returns the n-th Fibonacci number, where fibonacci(0) is 0 and fibonacci(1) is 1",
     "fibonacci(0) == 0; fibonacci(1) == 1; fibonacci(10) == 55"),
    ("is_prime(n)", "returns True if n is a prime number", "is_prime(2); is_prime(13); not is_prime(1); not is_prime(9); not is_prime(0)"),
    ("gcd(a, b)", "returns the greatest common divisor of two positive integers", "gcd(12, 18) == 6; gcd(7, 3) == 1"),
    ("reverse(text)", "returns the text backwards", "reverse('abc') == 'cba'; reverse('') == ''"),
    ("is_palindrome(text)", "returns True if the text reads the same backwards, ignoring upper and lower case",
     "is_palindrome('Level'); not is_palindrome('ab'); is_palindrome('')"),
    ("count_vowels(text)", "returns how many of the letters a, e, i, o, u (also upper case) the text has",
     "count_vowels('Orange') == 3; count_vowels('xyz') == 0"),
    ("word_count(text)", "returns the number of words separated by white space", "word_count('a bb  c') == 3; word_count('') == 0"),
    ("largest(numbers)", "returns the largest number of a list, or None if the list is empty", "largest([3, 9, 2]) == 9; largest([]) is None"),
    ("second_largest(numbers)", "returns the second largest distinct number of a list",
     "second_largest([1, 5, 3]) == 3; second_largest([5, 5, 4]) == 4"),
    ("unique(items)", "returns a list of the items without duplicates, in the order of their first occurrence",
     "unique([3, 1, 3, 2, 1]) == [3, 1, 2]; unique([]) == []"),
    ("flatten(lists)", "returns one list with the items of all lists in a list of lists", "flatten([[1, 2], [], [3]]) == [1, 2, 3]"),
    ("chunk(items, size)", "divides a list into lists of the given size; the last one may be shorter",
     "chunk([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]; chunk([], 3) == []"),
    ("mean(numbers)", "returns the arithmetic mean of a list of numbers", "mean([1, 2, 3, 4]) == 2.5; mean([7]) == 7"),
    ("median(numbers)", "returns the median of a list of numbers; for an even count the mean of the middle two",
     "median([3, 1, 2]) == 2; median([4, 1, 3, 2]) == 2.5"),
    ("mode(items)", "returns the most frequent item of a list", "mode([1, 2, 2, 3]) == 2; mode(['a']) == 'a'"),
    ("sum_of_squares(n)", "returns the sum of the squares of the integers from 1 to n", "sum_of_squares(3) == 14; sum_of_squares(0) == 0"),
    ("digit_sum(n)", "returns the sum of the decimal digits of a non-negative integer", "digit_sum(1234) == 10; digit_sum(0) == 0"),
    ("to_binary(n)", "returns the binary digits of a non-negative integer as a string without prefix",
     "to_binary(10) == '1010'; to_binary(0) == '0'"),
    ("from_binary(text)", "returns the integer whose binary digits the string has", "from_binary('1010') == 10; from_binary('0') == 0"),
    ("celsius(fahrenheit)", "converts a temperature from Fahrenheit to Celsius", "abs(celsius(212) - 100) < 1e-9; abs(celsius(32)) < 1e-9"),
    ("is_leap_year(year)", "returns True if the year is a leap year of the Gregorian calendar",
     "is_leap_year(2000); is_leap_year(2024); not is_leap_year(1900); not is_leap_year(2023)"),
    ("fizz_buzz(n)", "returns a list for the integers 1 to n: 'FizzBuzz' for multiples of 15, 'Fizz' for multiples of 3, 'Buzz' for "
     "multiples of 5, else the integer as a string", "fizz_buzz(5) == ['1', '2', 'Fizz', '4', 'Buzz']; fizz_buzz(15)[14] == 'FizzBuzz'"),
    ("caesar(text, shift)", "moves each lower-case letter by shift places in the alphabet, around its end, and keeps other characters",
     "caesar('abc', 2) == 'cde'; caesar('xyz!', 3) == 'abc!'"),
    ("char_counts(text)", "returns a dictionary from each character of the text to the number of its occurrences",
     "char_counts('aab') == {'a': 2, 'b': 1}; char_counts('') == {}"),
    ("are_anagrams(a, b)", "returns True if the two words have the same letters, each equally often",
     "are_anagrams('listen', 'silent'); not are_anagrams('a', 'aa')"),
    ("capitalize_words(text)", "returns the text with the first letter of each word in upper case, where words are separated by one space",
     "capitalize_words('a big cat') == 'A Big Cat'"),
    ("longest_word(text)", "returns the longest word of a text, the first one if several are equally long",
     "longest_word('a tree and leaf') == 'tree'; longest_word('one') == 'one'"),
    ("common(a, b)", "returns a sorted list of the items that both lists have, without duplicates", "common([3, 1, 2, 3], [3, 2, 5]) == [2, 3]"),
    ("invert(d)", "returns a dictionary with keys and values exchanged", "invert({'a': 1, 'b': 2}) == {1: 'a', 2: 'b'}; invert({}) == {}"),
    ("merge_sorted(a, b)", "merges two sorted lists into one sorted list", "merge_sorted([1, 4], [2, 3, 5]) == [1, 2, 3, 4, 5]; merge_sorted([], [1]) == [1]"),
    ("binary_search(items, target)", "returns the index of target in a sorted list, or -1 if it is absent",
     "binary_search([1, 3, 5, 7], 5) == 2; binary_search([1, 3], 2) == -1; binary_search([], 1) == -1"),
    ("bubble_sort(items)", "returns a sorted copy of a list and leaves the list unchanged",
     "bubble_sort([3, 1, 2]) == [1, 2, 3]; (lambda x: (bubble_sort(x), x)[1])([2, 1]) == [2, 1]"),
    ("transpose(matrix)", "returns the transpose of a matrix that is a list of rows, as a list of lists",
     "transpose([[1, 2, 3], [4, 5, 6]]) == [[1, 4], [2, 5], [3, 6]]"),
    ("dot(a, b)", "returns the dot product of two lists of numbers of the same length", "dot([1, 2, 3], [4, 5, 6]) == 32; dot([], []) == 0"),
    ("power(base, exponent)", "returns base to the power of a non-negative integer exponent without the operator **",
     "power(2, 10) == 1024; power(5, 0) == 1"),
    ("clamp(x, low, high)", "returns x limited to the range from low to high", "clamp(5, 0, 3) == 3; clamp(-1, 0, 3) == 0; clamp(2, 0, 3) == 2"),
    ("rotate(items, k)", "returns the list rotated to the right by k places", "rotate([1, 2, 3, 4], 1) == [4, 1, 2, 3]; rotate([1, 2], 4) == [1, 2]"),
    ("running_sum(numbers)", "returns the list of partial sums", "running_sum([1, 2, 3]) == [1, 3, 6]; running_sum([]) == []"),
    ("balanced(text)", "returns True if the parentheses ( and ) of the text are balanced", "balanced('(a(b))'); not balanced(')('); not balanced('(('); balanced('')"),
    ("roman(n)", "returns the Roman numeral of an integer from 1 to 3999", "roman(4) == 'IV'; roman(1994) == 'MCMXCIV'; roman(3) == 'III'"),
    ("divisors(n)", "returns the sorted list of all positive divisors of n, with 1 and n", "divisors(12) == [1, 2, 3, 4, 6, 12]; divisors(1) == [1]"),
    ("perfect(n)", "returns True if n equals the sum of its positive divisors other than n", "perfect(6); perfect(28); not perfect(12); not perfect(1)"),
    ("collatz(n)", "returns the number of steps of the Collatz sequence from n to 1: halve even numbers, else take 3n + 1",
     "collatz(1) == 0; collatz(6) == 8"),
    ("hamming(a, b)", "returns at how many positions two strings of the same length differ", "hamming('karolin', 'kathrin') == 3; hamming('', '') == 0"),
    ("compress(text)", "run-length encodes a text: each run becomes its character and its length, so 'aab' becomes 'a2b1'",
     "compress('aaabcc') == 'a3b1c2'; compress('') == ''"),
    ("pairs_with_sum(numbers, total)", "returns how many pairs of positions i < j have numbers[i] + numbers[j] == total",
     "pairs_with_sum([1, 2, 3, 4], 5) == 2; pairs_with_sum([1, 1, 1], 2) == 3; pairs_with_sum([], 1) == 0"),
    ("pascal(n)", "returns row n of Pascal's triangle as a list, where row 0 is [1]", "pascal(0) == [1]; pascal(4) == [1, 4, 6, 4, 1]"),
)
assert len(FUNCTIONS) == 50


# ---- code of the model ----


def code_of(answer):
    """The first block between fences; without fences, or with an open one, all text after the fence."""
    block = re.search(r"```[a-zA-Z]*\n(.*?)(?:```|\Z)", answer, re.S)
    return block.group(1) if block else answer


def limit_process():
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def passes(answer, tests):
    """Whether the code of the answer runs and every test is true. The tests come after the code, so they use its last definition."""
    checks = "".join("assert " + test.strip() + "\n" for test in tests.split(";"))
    program = code_of(answer) + "\n" + checks + "import os\nos.write(1, b'all hold')\n"
    with tempfile.TemporaryDirectory() as directory:
        try:
            r = subprocess.run([sys.executable, "-I", "-S", "-c", program], cwd=directory, env={}, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=limit_process, timeout=60)
        except (subprocess.TimeoutExpired, ValueError):  # ValueError: a NUL in the code
            return False
    return r.returncode == 0 and r.stdout.endswith(b"all hold")


# ---- requests ----


def ask(options, sampling, function, seed):
    signature, purpose, tests = function
    question = f"Write a Python function `{signature}` that {purpose}. Reply with the code of the function only."
    body = {"model": options.name, "messages": [{"role": "user", "content": question}], "max_tokens": MAX_TOKENS, "seed": seed, **sampling}
    request = urllib.request.Request(options.url.rstrip("/") + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as reply:
            choice = json.load(reply)["choices"][0]
    except OSError as e:
        return {"seed": seed, "failed": str(e)}
    is_cut = choice["finish_reason"] == "length"
    return {"seed": seed, "function": signature, "right": passes(choice["message"]["content"], tests), "cut": is_cut}


def summarise(name, results):
    done = [r for r in results if "failed" not in r]
    by_seed = {}
    for r in done:
        by_seed.setdefault(r["seed"], []).append(100 * r["right"])
    shares = [statistics.mean(v) for v in by_seed.values()]
    error = statistics.stdev(shares) / len(shares) ** 0.5 if len(shares) > 1 else 0
    return {"sampling": name, "functions": len(FUNCTIONS), "answers": len(done), "right": sum(r["right"] for r in done),
            "percent": round(statistics.mean(shares), 2) if shares else None, "standard_error": round(error, 2),
            "cut": sum(r["cut"] for r in done), "failed": len(results) - len(done)}


def read_setting(text):
    name, equals, value = text.partition("=")
    sampling = json.loads(value) if equals else None
    if not isinstance(sampling, dict):
        raise argparse.ArgumentTypeError("NAME={...} is needed")
    return name, sampling


def main():
    p = argparse.ArgumentParser(description="Compare sampling settings by functions whose unit tests are run.")
    p.add_argument("url")
    p.add_argument("name")
    p.add_argument("--sampling", action="append", required=True, type=read_setting, metavar="NAME=JSON", help="may be given several times")
    p.add_argument("--seeds", type=int, default=10)
    p.add_argument("--clients", type=int, default=16)
    p.add_argument("--results", help="file for one line of JSON per answer")
    o = p.parse_args()
    tasks = [(name, sampling, f, seed) for seed in range(1, o.seeds + 1) for f in FUNCTIONS for name, sampling in o.sampling]
    results = {name: [] for name, _ in o.sampling}
    with concurrent.futures.ThreadPoolExecutor(o.clients) as pool:
        answers = list(pool.map(lambda t: ask(o, t[1], t[2], t[3]), tasks))
    for (name, *_), answer in zip(tasks, answers):
        results[name].append(answer)
    if o.results:
        with open(o.results, "w") as f:
            f.writelines(json.dumps({"sampling": name, **answer}) + "\n" for name, found in results.items() for answer in found)
    for name, found in results.items():
        print(json.dumps(summarise(name, found)))
    sys.exit(any("failed" in a for a in answers))


if __name__ == "__main__":
    main()
