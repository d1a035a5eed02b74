"""Questions about the standard library, made from its own names and docstrings."""

import random
import re
import string
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, pairwise

from tau_live.demo.corpus import Entry, words_of
from tau_live.demo.strategies import suffixes_of

HIDDEN = 0.12
"""This share of the entries is never indexed; what is asked about them cannot be answered."""

HELD_OUT = 0.3
"""This share of the indexed entries is asked about in held-out questions only."""

PHRASE_WORDS = 4
"""A docstring with fewer words of its own is not asked about in words."""

MOST_DRAWN = 10_000
"""After so many entries that a question cannot be made from, there is none."""


class Kind(StrEnum):
    """How a question was made; nothing that decides may see it."""

    NAME = "name"
    """The name, or as much of its end as is unique."""
    MISSPELT_NAME = "misspelt name"
    """The same with one or two letters wrong."""
    SHORT_NAME = "short name"
    """The same with letters left out, and its parts apart."""
    PHRASE = "phrase"
    """Words of the docstring, some dropped, the object's own name removed."""
    GARBLED_PHRASE = "garbled phrase"
    """The same with words misspelt and abbreviated."""
    UNANSWERABLE = "unanswerable"
    """Any of these from an entry that is not in the index, or words of two docstrings mixed."""


SHARES: Mapping[Kind, float] = {
    Kind.NAME: 0.14,
    Kind.MISSPELT_NAME: 0.18,
    Kind.SHORT_NAME: 0.14,
    Kind.PHRASE: 0.22,
    Kind.GARBLED_PHRASE: 0.18,
    Kind.UNANSWERABLE: 0.14,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, and what would be right.

    Attributes:
        text: All that the agent may see.
        kind: How it was made.
        answers: The names that are right; none if giving up is right.
    """

    text: str
    kind: Kind
    answers: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """What questions are made from.

    Attributes:
        entries: Indexed, so that they can be found.
        hidden: Not indexed; questions about them cannot be answered.
        everything: All there is; a name is shortened as far as it is unique among these.
    """

    entries: tuple[Entry, ...]
    hidden: tuple[Entry, ...]
    everything: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The entries, parted so that nothing is learned from what is measured.

    Attributes:
        indexed: All that a search may find.
        training: What is asked about while learning.
        held_out: What is asked about when measuring: other entries, found and hidden ones.
    """

    indexed: tuple[Entry, ...]
    training: Pool
    held_out: Pool


def split(entries: Sequence[Entry], *, seed: int) -> Split:
    """Part the entries at random; those that share a first paragraph stay together."""
    by_summary: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_summary[entry.summary.lower()].append(entry)
    groups = list(by_summary.values())
    random.Random(f"split {seed}").shuffle(groups)  # noqa: S311 - questions, not secrets
    hidden = round(HIDDEN * len(groups))
    bounds = [0, round(HELD_OUT * hidden), hidden]
    bounds += [hidden + round(HELD_OUT * (len(groups) - hidden)), len(groups)]
    hidden_held_out, hidden_training, held_out, training = (
        tuple(entry for group in groups[low:high] for entry in group)
        for low, high in pairwise(bounds)
    )
    everything = tuple(entries)
    return Split(
        indexed=training + held_out,
        training=Pool(entries=training, hidden=hidden_training, everything=everything),
        held_out=Pool(entries=held_out, hidden=hidden_held_out, everything=everything),
    )


def questions(pool: Pool, *, count: int, seed: int) -> list[Question]:
    """Return ``count`` questions, each about another entry while there are enough.

    Args:
        pool: What is asked about; one side of a ``Split``.
        count: How many questions.
        seed: Of every random choice made here.

    Raises:
        ValueError: The pool has no entry that some kind of question can be made from.
    """
    rng = random.Random(f"questions {seed}")  # noqa: S311 - questions, not secrets
    kinds = rng.choices(list(SHARES), weights=list(SHARES.values()), k=count)
    asker = _Asker(pool, rng)
    return [asker.question(kind) for kind in kinds]


class _Asker:
    """Makes one question after the other from a pool."""

    def __init__(self, pool: Pool, rng: random.Random) -> None:
        self._rng = rng
        self._suffixes = Counter(
            suffix for entry in pool.everything for suffix in suffixes_of(entry.name)
        )
        self._sharing: dict[str, set[str]] = defaultdict(set)
        for entry in pool.entries:
            self._sharing[entry.summary.lower()].add(entry.name)
        self._found = self._shuffled(pool.entries)
        self._hidden = self._shuffled(pool.hidden)
        self._texts: dict[Kind, Callable[[Entry], str | None]] = {
            Kind.NAME: self._name,
            Kind.MISSPELT_NAME: self._misspelt_name,
            Kind.SHORT_NAME: self._short_name,
            Kind.PHRASE: self._phrase,
            Kind.GARBLED_PHRASE: self._garbled_phrase,
        }

    def question(self, kind: Kind) -> Question:
        """Return a question of this kind about an entry not yet asked about."""
        if kind is Kind.UNANSWERABLE:
            return Question(text=self._unanswerable(), kind=kind, answers=frozenset())
        entry, text = self._drawn(self._found, kind)
        in_words = kind in {Kind.PHRASE, Kind.GARBLED_PHRASE}
        answers = self._sharing[entry.summary.lower()] if in_words else {entry.name}
        return Question(text=text, kind=kind, answers=frozenset(answers))

    def _unanswerable(self) -> str:
        kinds = [*self._texts, None]
        kind = self._rng.choices(kinds, weights=[0.15, 0.15, 0.1, 0.2, 0.15, 0.25])[0]
        if kind is not None:
            return self._drawn(self._hidden, kind)[1]
        halves = [self._drawn(self._hidden, Kind.PHRASE)[1].split() for _ in range(2)]
        words = [word for half in halves for word in half[: 1 + len(half) // 2]]
        self._rng.shuffle(words)
        return " ".join(words)

    def _shuffled(self, entries: Sequence[Entry]) -> Iterator[Entry]:
        """Yield the entries in random order, for ever, each once before any comes again."""
        deck = list(entries)
        while deck:
            self._rng.shuffle(deck)
            yield from deck

    def _drawn(self, deck: Iterator[Entry], kind: Kind) -> tuple[Entry, str]:
        """Return the next entry that can be asked about in this way, and the text."""
        for entry in islice(deck, MOST_DRAWN):
            text = self._texts[kind](entry)
            if text is not None:
                return entry, text
        raise ValueError(f"expected entries to make a {kind} question from, found none")

    def _name(self, entry: Entry) -> str:
        """Return the whole name or the shortest end of it that no other has."""
        unique = [
            name
            for name in dotted_ends(entry.name)
            if self._suffixes[name.lower()] == 1 and len(name) >= 4
        ] or [entry.name]
        return self._rng.choice([unique[0], unique[-1]])

    def _misspelt_name(self, entry: Entry) -> str | None:
        name = self._name(entry)
        if len(name) < 5:
            return None
        wrong = misspelt(name, self._rng)
        if len(name) > 9 and self._rng.random() < 0.4:
            wrong = misspelt(wrong, self._rng)
        return None if self._suffixes[wrong.lower()] else wrong

    def _short_name(self, entry: Entry) -> str | None:
        words = words_of(self._name(entry))
        cut = self._rng.random() < 0.4
        short = " ".join(shortened(word, cut=cut) for word in words)
        return short if len(short) >= 5 and short != " ".join(words) else None

    def _phrase(self, entry: Entry) -> str | None:
        own = set(words_of(entry.name.rpartition(".")[2]))
        own.add(entry.name.rpartition(".")[2].lower())
        words = [word for word in words_of(entry.summary)[:14] if word not in own]
        kept = [word for word in words if self._rng.random() > (0.2 if len(word) > 3 else 0.5)]
        return " ".join(kept) if sum(len(word) > 3 for word in kept) >= PHRASE_WORDS else None

    def _garbled_phrase(self, entry: Entry) -> str | None:
        phrase = self._phrase(entry)
        if phrase is None:
            return None
        return " ".join(self._garbled(word) for word in phrase.split())

    def _garbled(self, word: str) -> str:
        chance = self._rng.random()
        if len(word) >= 4 and chance < 0.45:
            return misspelt(word, self._rng)
        if len(word) >= 5 and chance < 0.7:
            return shortened(word, cut=chance < 0.57)
        return word


def dotted_ends(name: str) -> list[str]:
    """Return a dotted name with ever more of its leading parts, its last part alone first."""
    parts = name.split(".")
    return [".".join(parts[start:]) for start in reversed(range(len(parts)))]


def misspelt(text: str, rng: random.Random) -> str:
    """Return the text with one letter dropped, doubled, replaced, or swapped with its neighbour."""
    at = rng.randrange(1, len(text) - 1)
    before, letter, after = text[:at], text[at], text[at + 1 :]
    match rng.randrange(4):
        case 0:
            return before + after
        case 1:
            return before + letter + letter + after
        case 2:
            return before + rng.choice(string.ascii_lowercase) + after
        case _:
            return before + after[0] + letter + after[1:]


def shortened(word: str, *, cut: bool) -> str:
    """Return the word cut to its first letters, or without the vowels after its first letter."""
    if len(word) < 4:
        return word
    return word[: 3 + len(word) // 6] if cut else word[0] + re.sub("[aeiou]", "", word[1:])
