"""Words of lessons: how many there are, which texts are refused, and what a text gives away.

A lesson comes from a model that has read attempts, tool output and tasks, all of which a stranger
may have written. So its text is taken for an attack until it matches none of the forms here.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable
from math import ceil
from typing import NamedTuple

from tau_live.core.redaction import scrub_text

LETTERS_A_WORD = 30
"""Code points that a piece of a token may have to count as one word."""

MOST_LETTERS = 240
"""Code points of a lesson."""

SPAN_WORDS = 8
"""Words in a row that a lesson may not share with a task."""

LEAST_ANSWER = 3
"""Characters of an expected answer from which a lesson may not hold it."""

SAME_WORDS = 0.8
"""The share of common words from which two lessons are one."""

_CJK = re.compile(
    "[\u1100-\u11ff\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3038-\u303b\u3040-\u30ff\u3100-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)
"""Han, kana, bopomofo and hangul, of which each character is a word."""

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")

_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
"""Categories of Unicode that a reader does not see: controls, formats such as zero-width and
bidirectional marks, private and unassigned code points, separators of lines."""

_FORMS = {
    "url": r"\b[a-z][a-z0-9+.-]*://|\bwww\.|\b(?:data|javascript|mailto):",
    "code_fence": r"`|~~~",
    "shell": r"\$[({]|&&|\|\||\|\s*(?:ba|z)?sh\b|(?:^|[\s;])(?:sudo|rm|curl|wget|chmod|chown|eval"
    r"|exec|nc|bash|powershell|pip|npm|apt|apt-get|ssh|scp|kill)\s+[-/~.\w]",
    "path": r"(?:^|[\s\"'(=])(?:~?/[\w.-]|\.{1,2}/|[a-z]:\\|\\\\)",
    "role_marker": r"(?:^|[\s\"'(#])(?:system|user|assistant|developer|human|tool|function)\s*:",
    "special_token": r"<\s*[|/]?\s*[a-z_]|[|/]\s*>|\[/?(?:inst|sys)\b|<<|>>|\{\{|\}\}",
    "base64": r"[a-z0-9+/=_-]{64,}",
    "system_prompt": r"system\W{0,3}(?:prompt|message|instruct)|developer\W{0,3}message"
    r"|jail\W?break|prompt\W?injection",
    # In scripts of their own the verb of an order is enough: ignore, forget, bypass, disclose
    "order": r"[忽无無]略|无视|無視|忘记|忘記|忘れて|绕过|繞過|泄露|洩露|透露|開示|漏ら"
    r"|무시|잊어|우회|누설|игнорир|забудь|обойди|раскро|системн|تجاهل|انس",
}
"""Forms that no lesson needs, by kind."""

_ABOUT_RULES = (
    "instruc|instruk|anweis|vorgab|consign|istruz|rule|regel|regle|regla|regol|regra|prompt|"
    "guideline|guardrail|polic|safety|previous|prior|earlier|above|everything|precedent|anterior|"
    "vorher|bisher|system"
)
_ABOUT_SECRETS = (
    "systemprompt|systemmessage|hiddenprompt|initialprompt|instructions|secret|password|passwort|"
    "credential|apikey|privatekey|geheim|motdepasse|contrasena|senha|wachtwoord"
)
_ORDERS = {
    "ignor|disregard|overrid|overrul|bypass|circumvent|forget|neglect|verg[ei]ss|missacht|umgeh|"
    "oubli|contourn|olvid|descart|dimentic|esquec|negeer": _ABOUT_RULES,
    "reveal|leak|expos|disclos|divulg|exfiltrat|print|repeat|output|show|tell|verrat|zeig|offenbar|"
    "revel|montr|muestr|mostr|rivel": _ABOUT_SECRETS,
}
"""Verbs of orders in European languages, and their objects, without separators and accents."""

_CALL = re.compile(
    r"\b(?:call|use|invoke|run|execute|trigger|query)\s+(?:the\s+)?(?:tool\s+)?[\"']?"
    r"([a-z][a-z0-9]*(?:[_.][a-z0-9_.]+)+|[a-z][\w.-]*(?=\(\)|[\"']?\s+(?:tool|function)\b))"
)
"""An order to call a tool by name."""

_NEAR = 60
"""The most letters between the verb of an order and its object."""

_DIGITS = str.maketrans("013457", "oieast")
"""Digits that stand for letters."""


def count_words(text: str) -> int:
    """Return how many words a text has, in any script.

    Each character of Chinese, Japanese and Korean counts as one; of everything else each piece
    between white space and such characters counts one word for each thirty code points.
    """
    return sum(
        len(_CJK.findall(token))
        + sum(ceil(len(piece) / LETTERS_A_WORD) for piece in _CJK.split(token))
        for token in unicodedata.normalize("NFC", text).split()
    )


def text_problem(text: str, *, max_words: int, tools: Collection[str] | None = ()) -> str | None:
    """Return why a text cannot be a lesson; ``None`` if it can.

    Args:
        text: The text.
        max_words: The most words, from 1 to 32.
        tools: The tools that it may name; ``None`` for any.

    Returns:
        ``too_many_words``, or ``unsafe_text`` and the kinds, such as ``unsafe_text: url, path``.
    """
    if not 0 < count_words(text) <= max_words or len(text) > MOST_LETTERS:
        return "too_many_words"
    kinds = unsafe_kinds(text, tools=tools)
    if "\n" in text or text != unicodedata.normalize("NFC", text):
        kinds = ["form", *kinds]
    return f"unsafe_text: {', '.join(kinds)}" if kinds else None


def unsafe_kinds(text: str, *, tools: Collection[str] | None = ()) -> list[str]:
    """Return the kinds of attack that a text may be, by name; none if it is safe.

    It is read as it is, with compatible characters of Unicode made one, and without anything
    between its letters: neither look-alikes nor separators hide an order.

    Args:
        text: The text.
        tools: The tools that it may name; ``None`` for any.
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    letters = _letters(plain)
    kinds = [kind for kind, form in _FORMS.items() if re.search(form, plain)]
    line = text.replace("\n", "")
    if not line.isprintable() and any(unicodedata.category(char) in _INVISIBLE for char in line):
        kinds.append("invisible")
    foreign = (word for word in plain.split() if not word.isascii())
    if any(len({*map(_script, filter(str.isalpha, word))} - {""}) > 1 for word in foreign):
        kinds.append("mixed_scripts")
    if scrub_text(text) != text:
        kinds.append("secret")
    if any(
        re.search(f"(?:{verb}).{{0,{_NEAR}}}(?:{object_})", read)
        for verb, object_ in _ORDERS.items()
        for read in (letters, letters.translate(_DIGITS))
    ):
        kinds.append("order")
    if tools is not None and {*_CALL.findall(plain)} - {tool.casefold() for tool in tools}:
        kinds.append("tool")
    return list(dict.fromkeys(kinds))


def _letters(text: str) -> str:
    """Return the letters and digits of a text, without accents."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", text)))


def _script(letter: str) -> str:
    """Return the script of a letter that has look-alikes in another; empty for all others."""
    script = unicodedata.name(letter, "").partition(" ")[0]
    return script if script in {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"} else ""


def similarity(text: str, other: str) -> float:
    """Return the share of common words of two texts: their Jaccard index, in ``[0, 1]``."""
    words, others = _word_set(text), _word_set(other)
    union = words | others
    return len(words & others) / len(union) if union else 1.0


def _word_set(text: str) -> frozenset[str]:
    return frozenset(_words(text))


def _words(text: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", text).casefold()
    return re.findall(r"\w+", _CJK.sub(r" \g<0> ", plain))


def normalise(text: str) -> str:
    """Return the words of a text, one space between: equal for texts that look the same."""
    return " ".join(_words(text))


def spans(text: str) -> set[tuple[str, ...]]:
    """Return all rows of eight words of a text."""
    words = _words(text)
    return {tuple(words[n : n + SPAN_WORDS]) for n in range(len(words) - SPAN_WORDS + 1)}


def numbers(text: str) -> set[str]:
    """Return the numbers that a text names."""
    return set(_NUMBER.findall(unicodedata.normalize("NFKC", text)))


class Leaks:
    """Finds what lessons give away of the tasks that they were learned from.

    Args:
        tasks: The text of every task of the split, by query id, with its expected answer.
    """

    def __init__(self, tasks: Iterable["TaskText"]) -> None:
        self._tasks = {task.query_id: task for task in tasks}
        self._spans = {span for task in self._tasks.values() for span in spans(task.prompt)}
        self._owners: dict[str, set[str]] = {}
        for task in self._tasks.values():
            for number in numbers(task.prompt) | numbers(task.expected or ""):
                self._owners.setdefault(number, set()).add(task.query_id)

    def of(self, text: str, query_id: str) -> str | None:
        """Return what a lesson from a task gives away: ``answer``, ``span`` or ``number``."""
        answer = normalise(self._tasks[query_id].expected or "")
        if len(answer) >= LEAST_ANSWER and f" {answer} " in f" {normalise(text)} ":
            return "answer"
        if spans(text) & self._spans:
            return "span"
        if any(self._owners.get(number) == {query_id} for number in numbers(text)):
            return "number"
        return None


class TaskText(NamedTuple):
    """The text of a task.

    Attributes:
        query_id: The task.
        prompt: Its text.
        expected: The expected answer as text; ``None`` if there is none.
    """

    query_id: str
    prompt: str
    expected: str | None
