"""Questions about the standard library, made from its own names and docstrings.

The outcome of each answer is kept in a file of its own, as it would be in a ticket system, so that
a demo that was killed continues where it stopped.
"""

import fcntl
import json
import os
import random
import re
import string
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, pairwise, takewhile
from pathlib import Path
from typing import NamedTuple

from tau_live.cli.demo.corpus import Entry, words_of
from tau_live.cli.demo.strategies import suffixes_of
from tau_live.core.errors import TauLiveError

HIDDEN = 0.12
"""The share of the entries that is never indexed; questions about them cannot be answered."""

HELD_OUT = 0.3
"""The share of the indexed entries that is for held-out questions only."""


class QuestionKind(StrEnum):
    """The way in which a question was made; no policy may see it."""

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


SHARES: Mapping[QuestionKind, float] = {
    QuestionKind.NAME: 0.14,
    QuestionKind.MISSPELT_NAME: 0.18,
    QuestionKind.SHORT_NAME: 0.14,
    QuestionKind.PHRASE: 0.22,
    QuestionKind.GARBLED_PHRASE: 0.18,
    QuestionKind.UNANSWERABLE: 0.14,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question and its right answers.

    Attributes:
        text: The text, which is all that the agent may see.
        kind: How it was made.
        answers: The names that are right; none if giving up is right.
    """

    text: str
    kind: QuestionKind
    answers: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The entries that questions are made from.

    Attributes:
        entries: Indexed, so that they can be found.
        hidden: Not indexed; questions about them cannot be answered.
        everything: All entries; a name is shortened as far as it is unique among these.
    """

    entries: tuple[Entry, ...]
    hidden: tuple[Entry, ...]
    everything: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The entries, split so that nothing is learned from what is measured.

    Attributes:
        indexed: All entries that a search may find.
        training: The entries of training questions.
        held_out: The entries of held-out questions: others, indexed and hidden.
    """

    indexed: tuple[Entry, ...]
    training: Pool
    held_out: Pool


def split_entries(entries: Sequence[Entry], *, seed: int) -> Split:
    """Split the entries at random; those that share a first paragraph stay together."""
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
        pool: The entries; one side of a ``Split``.
        count: The number of questions.
        seed: The seed of every random choice made here.

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
        self._indexed = self._shuffle(pool.entries)
        self._hidden = self._shuffle(pool.hidden)
        self._texts: dict[QuestionKind, Callable[[Entry], str | None]] = {
            QuestionKind.NAME: self._name,
            QuestionKind.MISSPELT_NAME: self._misspelt_name,
            QuestionKind.SHORT_NAME: self._short_name,
            QuestionKind.PHRASE: self._phrase,
            QuestionKind.GARBLED_PHRASE: self._garbled_phrase,
        }

    def question(self, kind: QuestionKind) -> Question:
        """Return a question of this kind about an unused entry."""
        if kind is QuestionKind.UNANSWERABLE:
            return Question(text=self._unanswerable(), kind=kind, answers=frozenset())
        entry, text = self._draw(self._indexed, kind)
        in_words = kind in {QuestionKind.PHRASE, QuestionKind.GARBLED_PHRASE}
        answers = self._sharing[entry.summary.lower()] if in_words else {entry.name}
        return Question(text=text, kind=kind, answers=frozenset(answers))

    def _unanswerable(self) -> str:
        kinds = [*self._texts, None]
        kind = self._rng.choices(kinds, weights=[0.15, 0.15, 0.1, 0.2, 0.15, 0.25])[0]
        if kind is not None:
            return self._draw(self._hidden, kind)[1]
        halves = [self._draw(self._hidden, QuestionKind.PHRASE)[1].split() for _ in range(2)]
        words = [word for half in halves for word in half[: 1 + len(half) // 2]]
        self._rng.shuffle(words)
        return " ".join(words)

    def _shuffle(self, entries: Sequence[Entry]) -> Iterator[Entry]:
        """Yield the entries in random order, forever, each once before any comes again."""
        deck = list(entries)
        while deck:
            self._rng.shuffle(deck)
            yield from deck

    def _draw(self, deck: Iterator[Entry], kind: QuestionKind) -> tuple[Entry, str]:
        """Return the next entry that makes a question of this kind, and its text."""
        # 10,000 entries without such a question mean that there is none.
        for entry in islice(deck, 10_000):
            text = self._texts[kind](entry)
            if text is not None:
                return entry, text
        raise ValueError(f"expected entries to make a {kind} question from, found none")

    def _name(self, entry: Entry) -> str:
        """Return the full name or the shortest end of it that is unique."""
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
        short = " ".join(shorten(word, cut=cut) for word in words)
        return short if len(short) >= 5 and short != " ".join(words) else None

    def _phrase(self, entry: Entry) -> str | None:
        own = set(words_of(entry.name.rpartition(".")[2]))
        own.add(entry.name.rpartition(".")[2].lower())
        words = [word for word in words_of(entry.summary)[:14] if word not in own]
        kept = [word for word in words if self._rng.random() > (0.2 if len(word) > 3 else 0.5)]
        # A docstring with fewer words of its own makes no question in words.
        return " ".join(kept) if sum(len(word) > 3 for word in kept) >= 4 else None

    def _garbled_phrase(self, entry: Entry) -> str | None:
        phrase = self._phrase(entry)
        if phrase is None:
            return None
        return " ".join(self._garble(word) for word in phrase.split())

    def _garble(self, word: str) -> str:
        chance = self._rng.random()
        if len(word) >= 4 and chance < 0.45:
            return misspelt(word, self._rng)
        if len(word) >= 5 and chance < 0.7:
            return shorten(word, cut=chance < 0.57)
        return word


def dotted_ends(name: str) -> list[str]:
    """Return the ends of a dotted name, the shortest first."""
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


def shorten(word: str, *, cut: bool) -> str:
    """Return the word cut to its first letters, or without the vowels after its first letter."""
    if len(word) < 4:
        return word
    return word[: 3 + len(word) // 6] if cut else word[0] + re.sub("[aeiou]", "", word[1:])


AT_ONCE = 0.5
NEVER = 0.1


class Outcome(NamedTuple):
    """The outcome of one answer.

    Attributes:
        question: The number of the question, from 0.
        run: The id of its rollout.
        reward: In ``[-1, 1]``.
        succeeded: Whether the answer was right.
        cost: The cost of its searches.
        due: The round after which it is sent; ``None`` for never.
    """

    question: int
    run: str
    reward: float
    succeeded: bool
    cost: float
    due: int | None


def due_after(question: int, *, round_: int, seed: int) -> int | None:
    """Return the round after which an outcome is sent: mostly at once, some late, some never."""
    rng = random.Random(f"{seed}:{question}")  # noqa: S311  # not for a secret
    chance = rng.random()
    if chance < NEVER:
        return None
    # A late outcome comes after one to four more rounds.
    return round_ if chance < NEVER + AT_ONCE else round_ + rng.randint(1, 4)


class Outcomes:
    """The outcomes so far, in a file that belongs to one demo at a time.

    Args:
        path: The file; its folder must exist.
        stored: Returns whether a rollout is in the store: the outcomes of others are dropped, and
            all that follow them.
        round_: The number of questions in a round; an incomplete one is dropped too.

    Raises:
        TauLiveError: Another demo of this seed runs on this store.
    """

    def __init__(self, path: Path, *, stored: Callable[[str], bool], round_: int) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise TauLiveError("another demo with this seed is running on this store") from error
        known = list(takewhile(lambda outcome: stored(outcome.run), _read_outcomes(path)))
        self.known = known[: len(known) - len(known) % round_]
        os.ftruncate(self._file, 0)
        self._write(self.known)

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Note outcomes whose rollouts are stored."""
        self.known += outcomes
        self._write(outcomes)

    def due(self, round_: int, *, since: int) -> list[Outcome]:
        """Return the outcomes due after the rounds from ``since`` to ``round_``, by question."""
        return [o for o in self.known if o.due is not None and since <= o.due <= round_]

    def close(self) -> None:
        """Let another demo have the file."""
        os.close(self._file)

    def _write(self, outcomes: Sequence[Outcome]) -> None:
        lines = "".join(json.dumps(outcome._asdict()) + "\n" for outcome in outcomes)
        os.write(self._file, lines.encode())


def _read_outcomes(path: Path) -> Iterator[Outcome]:
    """Yield the outcomes of a file up to the first line that is torn or not ours."""
    for line in path.read_bytes().split(b"\n"):
        try:
            outcome = Outcome(**json.loads(line))
        except (ValueError, TypeError):
            return
        yield outcome
