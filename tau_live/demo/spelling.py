"""A search that corrects its query: each word matches every word it may stand for."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from difflib import SequenceMatcher

from tau_live.demo.corpus import Entry, words_of

SIMILAR = 0.5
"""From here on a word may stand for another."""

RESCORED = 24
"""So many of the best entries are compared with the question letter by letter."""


class Spelling:
    """The words of all names and summaries, by their letters and by the entries that hold them."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._names = [
            [" ".join(words_of(name)) for name in (entry.name, entry.name.rpartition(".")[2])]
            for entry in entries
        ]
        self._holders: dict[str, list[int]] = defaultdict(list)
        self._sizes: list[int] = []
        for number, entry in enumerate(entries):
            words = dict.fromkeys(words_of(f"{entry.name} {entry.summary}"))
            self._sizes.append(len(words))
            for word in words:
                self._holders[word].append(number)
        self._weights = {
            word: math.log(1 + len(entries) / len(held)) for word, held in self._holders.items()
        }
        self._heaviest = max(self._weights.values(), default=1.0)
        self._by_pair: dict[str, list[str]] = defaultdict(list)
        self._by_letter: dict[str, list[str]] = defaultdict(list)
        for word in self._holders:
            self._by_letter[word[0]].append(word)
            for pair in pairs_of(word):
                self._by_pair[pair].append(word)

    def meant_by(self, word: str) -> dict[str, float]:
        """Return the known words that ``word`` may stand for, with a similarity in ``[0, 1]``."""
        if word in self._holders:
            return {word: 1.0}
        pairs = pairs_of(word)
        shared = Counter(other for pair in pairs for other in self._by_pair.get(pair, ()))
        found = {
            other: likeness
            for other, count in shared.items()
            if (likeness := 2 * count / (len(pairs) + len(pairs_of(other)))) >= SIMILAR
        }
        for other in self._longer(word):
            found[other] = max(found.get(other, 0.0), 0.4 + 0.6 * len(word) / len(other))
        return found

    def _longer(self, word: str) -> list[str]:
        """Return the known words that are ``word`` with letters put in after the first."""
        if len(word) < 2:
            return []
        letters = re.compile(word[0] + "".join(f"[^{letter}]*{letter}" for letter in word[1:]))
        return [
            other
            for other in self._by_letter.get(word[0], ())
            if len(other) > len(word) and letters.match(other)
        ]

    def ranked(self, text: str) -> list[tuple[float, int]]:
        """Return ``(score, number)`` of the best entries, best first, scores in ``[0, 1]``."""
        words = words_of(text)
        if not words:
            return []
        totals: dict[int, float] = defaultdict(float)
        possible = 0.0
        for word in dict.fromkeys(words):
            gains, most = self._gains(word)
            possible += most
            for number, gain in gains.items():
                totals[number] += gain
        covered = [
            (total / possible - 0.002 * self._sizes[number], number)
            for number, total in totals.items()
        ]
        return self._rescored(" ".join(words), _best_first(covered)[:RESCORED])

    def _gains(self, word: str) -> tuple[dict[int, float], float]:
        """Return what each entry gains by holding a word that is meant, and the most it could."""
        meant = self.meant_by(word)
        gains: dict[int, float] = {}
        for other, likeness in meant.items():
            gain = likeness * likeness * self._weights[other]
            for number in self._holders[other]:
                gains[number] = max(gains.get(number, 0.0), gain)
        return gains, max((self._weights[other] for other in meant), default=self._heaviest)

    def _rescored(self, asked: str, best: list[tuple[float, int]]) -> list[tuple[float, int]]:
        """Mix how much of the question an entry covers with how like its name the question is."""
        matcher = SequenceMatcher(b=asked, autojunk=False)
        scored = []
        for share, number in best:
            likeness = 0.0
            for name in self._names[number]:
                matcher.set_seq1(name)
                likeness = max(likeness, matcher.ratio())
            scored.append((max(0.0, min(1.0, 0.72 * share + 0.28 * likeness)), number))
        return _best_first(scored)


def pairs_of(word: str) -> set[str]:
    """Return the pairs of neighbouring letters of a word, its ends included."""
    framed = f"^{word}$"
    return {framed[i : i + 2] for i in range(len(framed) - 1)}


def _best_first(scored: list[tuple[float, int]]) -> list[tuple[float, int]]:
    return sorted(scored, key=lambda pair: (-pair[0], pair[1]))
