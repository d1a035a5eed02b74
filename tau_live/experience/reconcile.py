"""One step's change of the pool: what the models of all groups propose, made one and kept small."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tau_live.experience.config import Config
from tau_live.experience.credit import SURE, Uplift
from tau_live.experience.injection import block_of
from tau_live.experience.learner import Group, Lesson, Proposal
from tau_live.experience.records import Experience, LessonVersion
from tau_live.experience.words import SAME_WORDS, similarity
from tau_live.prompts.budget import tokens_at_most

LEAST_GROUPS = 2
"""Groups of a run that have to want a lesson deleted."""


class Edit(NamedTuple):
    """A change of the pool that is to be stored.

    Attributes:
        op: ``ADD``, ``UPDATE``, ``MERGE``, ``DELETE`` or ``PRUNE``.
        ids: The lessons of the pool that it changes.
        lesson: The new wording; ``None`` where a lesson leaves.
        support: The groups that support it.
        reason: Why.
        by: ``model`` or ``system``.
    """

    op: str
    ids: Sequence[str]
    lesson: Lesson | None
    support: Sequence[Group]
    reason: str
    by: str


class Reconciled(NamedTuple):
    """The change of a step.

    Attributes:
        edits: What is to be stored, in order.
        deletions: The groups of the run that want each lesson deleted, by id.
        rejects: How many proposals were refused, by reason.
    """

    edits: list[Edit]
    deletions: Mapping[str, Sequence[str]]
    rejects: Counter[str]


class Known(NamedTuple):
    """What is known before a step changes the pool.

    Attributes:
        pool: The lessons in force.
        effects: What each version was measured to do.
        harmful: Lessons that were measured to harm, also those that left.
        newest: The newest version of each lesson, which may have left or been rolled back.
        deletions: The groups of the run that wanted each lesson deleted before, by id.
    """

    pool: Sequence[Experience]
    effects: Mapping[LessonVersion, Uplift]
    harmful: Sequence[Experience]
    newest: Mapping[str, int]
    deletions: Mapping[str, Sequence[str]]


def reconcile(proposals: Iterable[Proposal], known: Known, config: Config) -> Reconciled:
    """Return the change of the pool of a step; the same proposals make the same change.

    Lessons that were measured to harm leave first. A deletion beats any other change of a lesson;
    of several new wordings the one with more support stays, and the others become additions. An
    addition of known words joins the lesson that has them. At most half of the pool changes, and
    what there is no room for does not enter, or leaves: the least effective, then the least
    supported, then the oldest.

    Args:
        proposals: Those of all groups, in the order of draw and place.
        known: What is known before.
        config: The caps.
    """
    step = _Step(proposals, known, config)
    step.prune_harmful()
    step.delete()
    step.merge()
    step.update()
    step.add()
    step.fit()
    return Reconciled(step.edits, step.wanted, +step.rejects)


class _Step:
    def __init__(self, proposals: Iterable[Proposal], known: Known, config: Config) -> None:
        self.edits: list[Edit] = []
        self.rejects = Counter[str]()
        self.wanted = {id_: [*groups] for id_, groups in known.deletions.items()}
        self._proposals = [*proposals]
        self._known = known
        self._pool = {lesson.id: lesson for lesson in known.pool}
        self._config = config
        self._changed: set[str] = set()
        self._room = max(1, len(self._pool) // 2)
        self._spare: list[Proposal] = []

    def prune_harmful(self) -> None:
        """Prune what was measured to harm."""
        for id_ in sorted(self._pool):
            effect = self._effect(id_)
            if effect.is_harmful:
                why = f"harms with a probability of {effect.harm:.3f}"
                self._leave("PRUNE", id_, [], why, by="system")

    def _effect(self, id_: str) -> Uplift:
        return self._known.effects.get((id_, self._pool[id_].version), Uplift())

    def delete(self) -> None:
        """Delete what enough groups of the run want deleted, or what most likely harms."""
        for proposal in self._of("DELETE"):
            own = self.wanted.setdefault(proposal.ids[0], [])
            if proposal.group.group_id not in own:
                own.append(proposal.group.group_id)
        for proposal in self._of("DELETE"):
            id_ = proposal.ids[0]
            likely = self._effect(id_).harm > SURE
            if id_ in self._changed:
                continue
            if len(self.wanted[id_]) < LEAST_GROUPS and not likely:
                self.rejects["unsupported_delete"] += 1
            elif self._may_change([id_]):
                self._leave("DELETE", id_, [proposal.group], proposal.reason, by="model")

    def merge(self) -> None:
        """Merge lessons, each into one at most."""
        for proposal in self._of("MERGE"):
            ids = sorted({*proposal.ids})
            if any(id_ in self._changed for id_ in ids):
                self.rejects["stale_version"] += 1
            elif proposal.lesson is not None and self._may_change(ids):
                self._changed |= {*ids}
                self.edits.append(
                    Edit("MERGE", ids, proposal.lesson, [proposal.group], proposal.reason, "model")
                )

    def update(self) -> None:
        """Reword lessons: of several wordings the one with more support, then the first."""
        by_id: dict[str, list[Proposal]] = {}
        for proposal in self._of("UPDATE"):
            by_id.setdefault(proposal.ids[0], []).append(proposal)
        for id_, own in by_id.items():
            if id_ in self._changed or self._known.newest[id_] != self._pool[id_].version:
                self._spare += own
                continue
            best = max(own, key=lambda each: len(self._alike(each, own)))
            alike = self._alike(best, own)
            self._spare += [each for each in own if each not in alike]
            if best.lesson is None or not self._may_change([id_]):
                continue
            self._changed.add(id_)
            groups = [each.group for each in alike]
            self.edits.append(Edit("UPDATE", [id_], best.lesson, groups, best.reason, "model"))

    def add(self) -> None:
        """Add lessons; those of known words join the lesson that has them."""
        added: list[tuple[Lesson, list[Group], str]] = []
        joined: dict[str, list[Group]] = {}
        for proposal in (*self._of("ADD"), *self._spare):
            lesson = proposal.lesson
            if lesson is None or self._harms(lesson):
                continue
            known = self._twin(lesson)
            twin = next((each for each in added if _are_same(each[0], lesson)), None)
            if known is not None:
                joined.setdefault(known.id, []).append(proposal.group)
            elif twin is not None:
                twin[1].append(proposal.group)
            else:
                added.append((lesson, [proposal.group], proposal.reason))
        for id_, groups in joined.items():
            self._join(self._pool[id_], groups)
        for place, (lesson, groups, reason) in enumerate(sorted(added, key=_support)):
            if place < self._config.growth_cap:
                self.edits.append(Edit("ADD", [], lesson, groups, reason, "model"))
            else:
                self.rejects["growth_cap"] += 1

    def _harms(self, lesson: Lesson) -> bool:
        """Return whether a lesson of these words was measured to harm, and count that."""
        harms = any(_are_same(_words_of(each), lesson) for each in self._known.harmful)
        self.rejects["known_to_harm"] += harms
        return harms

    def _join(self, lesson: Experience, groups: Sequence[Group]) -> None:
        """Let more tasks support a lesson; its words stay."""
        fresh = [group for group in groups if group.task.query_id not in lesson.support]
        if not fresh or lesson.id in self._changed:
            return
        self._changed.add(lesson.id)
        self.edits.append(
            Edit("UPDATE", [lesson.id], _words_of(lesson), fresh, "more tasks support it", "system")
        )

    def fit(self) -> None:
        """Make room where the pool has too many lessons or tokens."""
        gone = {id_ for edit in self.edits if edit.op in _LEAVING for id_ in edit.ids}
        left = {id_: lesson for id_, lesson in self._pool.items() if id_ not in gone}
        while left or self._additions():
            new = self._additions()
            count = len(left) + len(new)
            tokens = tokens_at_most(
                block_of(left.values()),
                *(edit.lesson.text for edit in new if edit.lesson is not None),
            )
            if count <= self._config.pool_cap and tokens <= self._config.token_cap:
                return
            worst = min(
                left.values(),
                key=lambda each: (
                    self._effect(each.id).lower, len(each.support),
                    each.created_unix_ms,
                ),
                default=None,
            )  # fmt: skip
            newest = min(new, key=lambda edit: len(edit.support), default=None)
            is_new_worse = newest is not None and (
                worst is None
                or (0.0, len(newest.support)) < (self._effect(worst.id).lower, len(worst.support))
            )
            if newest is not None and is_new_worse:
                self.edits.remove(newest)
                self.rejects["pool_cap"] += 1
            elif worst is not None:
                del left[worst.id]
                self.edits = [edit for edit in self.edits if worst.id not in edit.ids]
                self._leave("PRUNE", worst.id, [], "there is no room for it", by="system")

    def _additions(self) -> list[Edit]:
        return [edit for edit in self.edits if edit.op in {"ADD", "MERGE"}]

    def _of(self, op: str) -> list[Proposal]:
        return [proposal for proposal in self._proposals if proposal.op == op]

    def _alike(self, proposal: Proposal, others: Iterable[Proposal]) -> list[Proposal]:
        return [
            each
            for each in others
            if each.lesson is not None
            and proposal.lesson is not None
            and _are_same(each.lesson, proposal.lesson)
        ]

    def _twin(self, lesson: Lesson) -> Experience | None:
        """Return the lesson of the pool that has the same words."""
        return next(
            (
                each
                for id_, each in sorted(self._pool.items())
                if id_ not in self._changed and _are_same(_words_of(each), lesson)
            ),
            None,
        )

    def _may_change(self, ids: Sequence[str]) -> bool:
        """Take room for a change of lessons; ``False`` if more than half would change."""
        if self._room < len(ids):
            self.rejects["half_of_the_pool"] += 1
            return False
        self._room -= len(ids)
        return True

    def _leave(self, op: str, id_: str, groups: Sequence[Group], why: str, *, by: str) -> None:
        self._changed.add(id_)
        self.edits.append(Edit(op, [id_], None, groups, why, by))


_LEAVING = frozenset({"PRUNE", "DELETE", "MERGE"})


def _words_of(lesson: Experience) -> Lesson:
    return Lesson(kind=lesson.kind, when=lesson.when, text=lesson.summary32)


def _are_same(lesson: Lesson, other: Lesson) -> bool:
    return lesson.kind == other.kind and similarity(lesson.text, other.text) >= SAME_WORDS


def _support(added: tuple[Lesson, list[Group], str]) -> int:
    return -len({group.task.query_id for group in added[1]})
