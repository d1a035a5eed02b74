"""The searches that the demo's agent can choose from: real ones, at really different costs."""

import math
import re
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from typing import NamedTuple

from tau_live.cli.demo.corpus import Entry, Spelling, words_of
from tau_live.core.errors import TauLiveError


class Strategy(StrEnum):
    """A way to search, cheapest first."""

    EXACT = "exact"
    """Look the name up."""
    WORDS = "words"
    """Rank summaries by their words: BM25 in SQLite's full-text index."""
    TRIGRAMS = "trigrams"
    """Rank summaries by trigrams of letters."""
    FUZZY = "fuzzy"
    """Compare names letter by letter, among those that share a trigram."""
    CORRECTED = "corrected"
    """Match each word with all it may misspell or abbreviate, in names and summaries."""


PRICES: Mapping[Strategy, float] = {
    Strategy.EXACT: 0.01,
    Strategy.WORDS: 0.02,
    Strategy.TRIGRAMS: 0.1,
    Strategy.FUZZY: 0.14,
    Strategy.CORRECTED: 0.25,
}
"""The price of a search: 0.01 for a step of the agent and 0.08 for each millisecond of work.

Measured as the mean over 1,200 questions, Python 3.11 with SQLite 3.40 on one core: exact 0.002 ms,
words 0.15 ms, trigrams 1.12 ms, fuzzy 1.62 ms, corrected 3.07 ms (half of that since); rounded to a
hundredth. Constants, so that two machines pay the same.
"""


class Hit(NamedTuple):
    """The best match of a search.

    Attributes:
        name: The name of the best entry.
        score: How well it fits the question, in ``[0, 1]``, scaled so that scores of different
            searches can be compared: of two, the higher one is more often right.
        margin: Its lead over the second, in ``[0, 1]``; 1 if there is no second.
        matches: The number of entries that match.
    """

    name: str
    score: float
    margin: float
    matches: int


class Library:
    """The corpus in an in-memory SQLite database, and every way to search it.

    Each search runs at most once for each text; its hit is kept.

    Attributes:
        hits: The hits so far, by strategy and text.

    Raises:
        TauLiveError: This Python's SQLite lacks FTS5 or its trigram tokenizer (SQLite 3.34).
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = list(entries)
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        fill_tables(self._database, self._entries)
        self._spelling = Spelling(self._entries)
        self.hits: dict[tuple[Strategy, str], Hit | None] = {}
        self._by_suffix: dict[str, list[int]] = defaultdict(list)
        holders: dict[str, int] = defaultdict(int)
        self._summaries = [
            {word[:5] for word in words_of(entry.summary)} for entry in self._entries
        ]
        for number, entry in enumerate(self._entries):
            for suffix in suffixes_of(entry.name):
                self._by_suffix[suffix].append(number)
            for word in set(words_of(entry.summary)):
                holders[word] += 1
        total = len(self._entries)
        # A word in more than a tenth of the summaries is not informative, and not searched for.
        self._common = {word for word, n in holders.items() if n > 0.1 * total}
        self._rarities = {word: math.log(total / n) for word, n in holders.items()}
        self._name_words = {word for entry in self._entries for word in words_of(entry.name)}

    def close(self) -> None:
        """Close the database; no search is possible afterwards."""
        self._database.close()

    def search(self, strategy: Strategy, text: str) -> Hit | None:
        """Return the best hit for ``text``, or None if nothing matches at all."""
        searches = {
            Strategy.EXACT: self._exact,
            Strategy.WORDS: self._words,
            Strategy.FUZZY: self._fuzzy,
            Strategy.TRIGRAMS: self._trigrams,
            Strategy.CORRECTED: self._match_corrected,
        }
        if (strategy, text) not in self.hits:
            self.hits[strategy, text] = searches[strategy](text)
        return self.hits[strategy, text]

    def describe(self, text: str) -> dict[str, float | str]:
        """Return the features of a question before any search, at next to no cost."""
        words = words_of(text)
        count = max(1, len(words))
        letters = sum(map(len, words))
        vowels = sum(len(re.findall("[aeiou]", word)) for word in words)
        return {
            "shape": _shape(text),
            "words": min(1.0, len(words) / 12),
            "mean_length": min(1.0, letters / count / 10),
            "vowels": vowels / max(1, letters),
            "known": sum(word in self._rarities for word in words) / count,
            "known_in_names": sum(word in self._name_words for word in words) / count,
        }

    def _exact(self, text: str) -> Hit | None:
        wanted = text.strip().lower()
        names = [self._entries[number].name for number in self._by_suffix.get(wanted, ())]
        if not names:
            return None
        shortest = min(names, key=len)
        is_unique = len(names) == 1 or shortest.lower() == wanted
        return Hit(shortest, 1.0 if is_unique else 1 / len(names), float(is_unique), len(names))

    def _words(self, text: str) -> Hit | None:
        words = [word for word in dict.fromkeys(words_of(text)) if word not in self._common]
        if not words:
            return None
        best = self._matches(
            "select rowid, -rank from words where words match ? order by rank, rowid limit 8", words
        )
        if not best:
            return None
        number = best[0][0]
        rarest = math.log(len(self._entries))
        weights = {word: self._rarities.get(word, rarest) for word in words}
        covered = sum(
            weight for word, weight in weights.items() if word[:5] in self._summaries[number]
        )
        score = covered / max(1e-9, sum(weights.values()))
        return Hit(self._entries[number].name, score, _lead(best), len(best))

    def _fuzzy(self, text: str) -> Hit | None:
        query = re.sub(r"[\s\0]+", ".", text.strip().lower())
        near = self._matches(
            "select rowid, 0.0 from names where names match ? order by rank, rowid limit 20",
            _trigrams([query]),
        )
        if not near:
            return None
        matcher = SequenceMatcher(b=query, autojunk=False)
        scored = [(self._likeness(matcher, number), number) for number, _ in near]
        scored.sort(key=lambda pair: (-pair[0], pair[1]))
        (score, number), (second, _) = scored[0], [*scored, (0.0, 0)][1]
        # names that have nothing in common are still half alike
        likely = max(0.0, 2 * score - 1)
        return Hit(self._entries[number].name, likely, score - second, len(scored))

    def _likeness(self, matcher: "SequenceMatcher[str]", number: int) -> float:
        """Return the similarity of the question to a name or its end, in ``[0, 1]``."""
        best = 0.0
        for suffix in suffixes_of(self._entries[number].name):
            matcher.set_seq1(suffix)
            if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
                best = max(best, matcher.ratio())
        return best

    def _trigrams(self, text: str) -> Hit | None:
        trigrams = _trigrams(words_of(text))
        best = self._matches(
            "select rowid, -rank from trigrams where trigrams match ? order by rank, rowid limit 8",
            trigrams,
        )
        if not best:
            return None
        entry = self._entries[best[0][0]]
        shared = sum(trigram in entry.summary.lower() for trigram in trigrams) / len(trigrams)
        return Hit(entry.name, shared * shared, _lead(best), len(best))

    def _match_corrected(self, text: str) -> Hit | None:
        ranked = self._spelling.rank(text)
        if not ranked:
            return None
        (score, number), (second, _) = ranked[0], [*ranked, (0.0, 0)][1]
        return Hit(self._entries[number].name, math.sqrt(score), score - second, len(ranked))

    def _matches(self, statement: str, terms: Sequence[str]) -> list[tuple[int, float]]:
        """Return ``(number, score)`` of the entries that contain any of the terms."""
        if not terms:
            return []
        quoted = " OR ".join('"' + term.replace('"', '""') + '"' for term in terms)
        return self._database.execute(statement, (quoted,)).fetchall()


def suffixes_of(name: str) -> list[str]:
    """Return the suffixes of a dotted name in lower case, the longest first."""
    parts = name.lower().split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]


def fill_tables(database: sqlite3.Connection, entries: Sequence[Entry]) -> None:
    """Create the full-text tables that are searched.

    Raises:
        TauLiveError: SQLite refuses, as it does without FTS5 or before it had trigrams (3.34).
    """
    names = [(number, entry.name) for number, entry in enumerate(entries)]
    summaries = [(number, entry.summary) for number, entry in enumerate(entries)]
    try:
        database.executescript("""
            create virtual table words using fts5(summary, tokenize = 'porter unicode61');
            create virtual table names using fts5(name, tokenize = 'trigram');
            create virtual table trigrams using fts5(summary, tokenize = 'trigram');
        """)
    except sqlite3.OperationalError as error:
        raise TauLiveError(
            "the demo needs SQLite 3.34 or newer with FTS5 and its trigram tokenizer, "
            f"this Python has {sqlite3.sqlite_version} ({error})"
        ) from error
    database.executemany("insert into words (rowid, summary) values (?, ?)", summaries)
    database.executemany("insert into names (rowid, name) values (?, ?)", names)
    database.executemany("insert into trigrams (rowid, summary) values (?, ?)", summaries)


def _lead(best: Sequence[tuple[int, float]]) -> float:
    """Return the lead of the first over the second as a share of the first's score."""
    if len(best) < 2:
        return 1.0
    return max(0.0, min(1.0, 1 - best[1][1] / max(1e-9, best[0][1])))


def _trigrams(words: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(word[i : i + 3] for word in words for i in range(len(word) - 2)))


def _shape(text: str) -> str:
    """Return the shape of a question: one name, dotted or not, a few words, or a phrase."""
    count = len(text.split())
    if count == 1:
        return "dotted" if "." in text else "one word"
    return "few words" if count <= 3 else "phrase"
