"""Injection: the lessons that a prompt holds, and why it does not hold the others."""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from tau_live.experience.credit import Uplift
from tau_live.experience.packs import Pack
from tau_live.experience.records import Experience, LessonVersion
from tau_live.experience.words import unsafe_kinds
from tau_live.prompts.budget import tokens_at_most

LEAST_SUPPORT = 2
"""Different tasks that have to support a lesson."""

PROVEN_EXPOSURES = 10
"""Exposures from which a positive effect stands for support."""

Reason = Literal[
    "other_domain", "other_pack", "other_model", "other_tool", "probation", "below_min_score",
    "dropped_out", "outcompeted", "token_cap", "unsafe_together",
]  # fmt: skip
"""Why a lesson is not in a prompt."""


class Choice(NamedTuple):
    """The lessons for a prompt.

    Attributes:
        taken: Those that are in it, by id.
        withheld: Those that are left out to measure them, by id.
        others: Why each other lesson of the pool is not in it, by id.
    """

    taken: list[Experience]
    withheld: list[Experience]
    others: dict[str, Reason]


class Rules(NamedTuple):
    """What a lesson has to fulfil.

    Attributes:
        pack: The pack in use.
        model_id: The model in use.
        min_score: The lowest effect; the higher of this and the pack's counts.
        token_cap: The most tokens of all lessons of a prompt.
        migrated: Digests and models that count as the ones in use.
        tools: The tools that a lesson may name.
    """

    pack: Pack
    model_id: str
    min_score: float
    token_cap: int
    migrated: Container[str] = ()
    tools: Collection[str] = ()


def line_of(lesson: Experience) -> str:
    """Return a lesson as a line of a prompt."""
    condition = f" (when {lesson.when})" if lesson.when else ""
    return f"- {'Avoid: ' if lesson.kind == 'avoid' else ''}{lesson.summary32}{condition}"


def block_of(lessons: Iterable[Experience]) -> str:
    """Return the lines of lessons, sorted by id."""
    return "\n".join(line_of(each) for each in sorted(lessons, key=lambda each: each.id))


def choose(
    lessons: Sequence[Experience],
    rules: Rules,
    effects: Mapping[LessonVersion, Uplift],
    *,
    dropped: Collection[str] = (),
) -> Choice:
    """Choose the lessons of a prompt: the most effective, from different origins.

    Args:
        lessons: Those in the pool, whose stamps were verified.
        rules: What each has to fulfil.
        effects: What each version was measured to do.
        dropped: The ids that are left out of this prompt to measure them.
    """
    others: dict[str, Reason] = {}
    eligible = []
    for lesson in lessons:
        reason = _reason(lesson, rules, effects.get((lesson.id, lesson.version), Uplift()))
        if reason is None:
            eligible.append(lesson)
        else:
            others[lesson.id] = reason
    withheld = [lesson for lesson in eligible if lesson.id in dropped]
    others |= {lesson.id: "dropped_out" for lesson in withheld}
    taken = list[Experience]()
    kept = [each for each in eligible if each.id not in dropped]
    for lesson in _best_first(kept, rules, effects):
        block = block_of([*taken, lesson])
        if len(taken) == rules.pack.slots:
            others[lesson.id] = "outcompeted"
        elif "token_cap" in others.values() or tokens_at_most(block) > rules.token_cap:
            others[lesson.id] = "token_cap"
        elif _is_unsafe(lesson, taken, rules):
            others[lesson.id] = "unsafe_together"
        else:
            taken.append(lesson)
    return Choice(sorted(taken, key=lambda each: each.id), withheld, others)


def _is_unsafe(lesson: Experience, taken: Iterable[Experience], rules: Rules) -> bool:
    """Return whether a lesson and another are an order together, whichever is read first."""
    line, tools = line_of(lesson), (*rules.tools,)
    return any(
        _is_attack(line, line_of(other), tools) or _is_attack(line_of(other), line, tools)
        for other in taken
    )


@lru_cache(maxsize=8192)  # the same few lessons are chosen from for every group
def _is_attack(line: str, after: str, tools: tuple[str, ...]) -> bool:
    return bool(unsafe_kinds(f"{line} {after}", tools=tools))


def _reason(  # noqa: PLR0911  # a reason each
    lesson: Experience, rules: Rules, effect: Uplift
) -> Reason | None:
    """Return why a lesson cannot be in a prompt; ``None`` if it can."""
    if lesson.domain != rules.pack.domain:
        return "other_domain"
    if lesson.pack_digest != rules.pack.digest and lesson.pack_digest not in rules.migrated:
        return "other_pack"
    if lesson.model_id != rules.model_id and lesson.model_id not in rules.migrated:
        return "other_model"
    if _is_attack(line_of(lesson), "", (*rules.tools,)):
        return "other_tool"
    is_proven = effect.exposures >= PROVEN_EXPOSURES and effect.mean > 0.0
    if len({*lesson.support}) < LEAST_SUPPORT and not is_proven:
        return "probation"
    if effect.mean < max(rules.min_score, rules.pack.retrieval.min_score):
        return "below_min_score"
    return None


def _best_first(
    eligible: Sequence[Experience], rules: Rules, effects: Mapping[LessonVersion, Uplift]
) -> Iterator[Experience]:
    """Yield lessons, the best first.

    Each costs what its origin has already: the best by that, then by effect, then the newest, then
    the first by id.
    """
    left = {lesson.id: lesson for lesson in sorted(eligible, key=lambda each: each.id)}
    sources = Counter[str]()

    def rank(lesson: Experience) -> tuple[float, float, int]:
        score = effects.get((lesson.id, lesson.version), Uplift()).mean
        crowd = rules.pack.retrieval.diversity_strength * sources[lesson.support[0]]
        return round(score - crowd, 6), score, lesson.created_unix_ms

    while left:
        best = left.pop(max(left.values(), key=rank).id)
        sources[best.support[0]] += 1
        yield best
