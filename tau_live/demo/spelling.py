"""A search that corrects what it is asked: each word is matched with all it may stand for."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
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
        self._holders: dict[str, dict[int, float]] = defaultdict(dict)
        self._sizes: list[int] = []
        for number, entry in enumerate(entries):
            words = Counter(words_of(entry.summary))
            words.update(words_of(entry.name))
            self._sizes.append(len(words))
            for word in words:
                self._holders[word][number] = 1.0
        self._weights = {
            word: math.log(1 + len(entries) / len(held)) for word, held in self._holders.items()
        }
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
        if len(word) >= 2:
            letters = re.compile(".*".join(map(re.escape, word)))
            for other in self._by_letter.get(word[0], ()):
                if len(other) > len(word) and letters.match(other):
                    found[other] = max(found.get(other, 0.0), 0.4 + 0.6 * len(word) / len(other))
        return found

    def ranked(self, text: str) -> list[tuple[float, int]]:
        """Return ``(score, number)`` of the best entries, best first, scores in ``[0, 1]``."""
        words = words_of(text)
        if not words:
            return []
        heaviest = max(self._weights.values())
        totals: dict[int, float] = defaultdict(float)
        possible = 0.0
        for word in dict.fromkeys(words):
            meant = self.meant_by(word)
            best: dict[int, float] = {}
            for other, likeness in meant.items():
                gain = likeness * likeness * self._weights[other]
                for number in self._holders[other]:
                    best[number] = max(best.get(number, 0.0), gain)
            for number, gain in best.items():
                totals[number] += gain
            possible += max((self._weights[other] for other in meant), default=heaviest)
        return self._rescored(words, ((gain / possible, number) for number, gain in totals.items()))

    def _rescored(
        self, words: Sequence[str], covered: Iterable[tuple[float, int]]
    ) -> list[tuple[float, int]]:
        """Mix how much of the question an entry covers with how like its name the question is."""
        asked = " ".join(words)
        matcher = SequenceMatcher(b=asked, autojunk=False)
        best = sorted(
            ((share - 0.002 * self._sizes[number], number) for share, number in covered),
            key=lambda pair: (-pair[0], pair[1]),
        )[:RESCORED]
        scored = []
        for share, number in best:
            likeness = 0.0
            for name in self._names[number]:
                matcher.set_seq1(name)
                likeness = max(likeness, matcher.ratio())
            scored.append((max(0.0, min(1.0, 0.72 * share + 0.28 * likeness)), number))
        return sorted(scored, key=lambda pair: (-pair[0], pair[1]))


def pairs_of(word: str) -> set[str]:
    """Return the pairs of neighbouring letters of a word, its ends included."""
    framed = f"^{word}$"
    return {framed[i : i + 2] for i in range(len(framed) - 1)}
