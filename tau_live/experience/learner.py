"""The learner: a model says in words what better attempts did, and what becomes of the lessons."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from typing import Literal, NamedTuple, TypeVar

import msgspec

from tau_live.core.guard import logger, text_of
from tau_live.core.redaction import scrub_text
from tau_live.core.sanitize import JsonObject
from tau_live.experience.config import Config
from tau_live.experience.groups import seed_of
from tau_live.experience.packs import Pack
from tau_live.experience.records import AttemptReward, Experience, ToolStat
from tau_live.experience.stamps import MAX_WORDS, MOST_WHEN_WORDS
from tau_live.experience.tasks import Task
from tau_live.experience.words import Leaks, count_words, text_problem
from tau_live.prompts.models import Answer, Models, StoppedError, SurroundingsError
from tau_live.store.roles import Store

TRIES = 3
"""Attempts at a reply that fits its schema."""

MOST_SHOWN = 6
"""The most attempts that are compared at once."""

LONGEST_OUTPUT = 2000
"""Characters of an output that a learner reads."""

LONGEST_REPLY = 16_000
"""The last characters of an answer in which a reply is looked for."""

DECODER = json.JSONDecoder()

MAX_TOKENS = 1024
"""The most tokens of a reply."""

SHORTEN = "Say it again in at most {words} words. Answer with JSON alone, of the same form."

Role = Literal["summarize", "extract", "optimize"]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an attempt: the output of its rollout.

    Attributes:
        output: What the agent gave; ``None`` if it failed.
        gt: Its ground-truth score; ``None`` if a check failed itself.
        checks: Each planned check with its result, as JSON data.
        tools: The tools that it used.
        calls: Its model calls.
        input_tokens: Of these.
        output_tokens: Of these.
        usd: US dollars; ``None`` if unknown.
        latency_ms: Milliseconds of its model calls.
        rewarders_ms: Milliseconds of its checks.
        scores: Those of rewarders of the user's own.
        note: Why it failed, or why it has no score; empty if there is nothing to say.
        is_failed: Whether the agent failed.
    """

    output: str | None = None
    gt: float | None = None
    checks: list[JsonObject] = []
    tools: list[ToolStat] = []
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None
    latency_ms: float = 0.0
    rewarders_ms: float = 0.0
    scores: dict[str, float] = {}
    note: str = ""
    is_failed: bool = False

    @property
    def failure(self) -> str | None:
        """Why it failed; ``None`` if it did not."""
        return self.note if self.is_failed else None

    @property
    def reward(self) -> float | None:
        """Its score."""
        return self.gt


class Member(NamedTuple):
    """A member of a group.

    Attributes:
        number: From 0.
        rollout_id: Its rollout.
        attempt: What became of it; ``None`` if its surroundings failed.
        reward: Its reward.
    """

    number: int
    rollout_id: str
    attempt: Attempt | None
    reward: AttemptReward


class Group(NamedTuple):
    """A group that has ended.

    Attributes:
        group_id: Its id.
        draw: The number of its task in the epoch.
        task: Its task.
        members: All of them.
        injected: The lessons in its prompt.
        withheld: The lessons that were left out of it to measure them.
    """

    group_id: str
    draw: int
    task: Task
    members: Sequence[Member]
    injected: Sequence[Experience]
    withheld: Sequence[Experience]

    @property
    def valid(self) -> list[Member]:
        """The members that have a score."""
        return [member for member in self.members if member.reward.gt is not None]


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """A lesson as a model words it.

    Attributes:
        kind: Whether to do it or to avoid it.
        when: Its condition, in at most 16 words.
        text: The lesson.
    """

    kind: Literal["do", "avoid"] = "do"
    when: str = ""
    text: str


class Proposal(NamedTuple):
    """A change of the pool that a model proposes.

    Attributes:
        op: ``ADD``, ``UPDATE``, ``MERGE`` or ``DELETE``.
        group: The group that it rests on.
        ids: The lessons of the pool that it changes.
        lesson: The new wording; ``None`` for a deletion.
        reason: Why, in the model's words.
    """

    op: str
    group: Group
    ids: Sequence[str]
    lesson: Lesson | None
    reason: str


class Study(NamedTuple):
    """What was learned from a group.

    Attributes:
        summaries: The attempt of each valid member in words, by its number; those that a model
            could not give are missing.
        proposals: The changes that it proposes.
        kept: How often it proposes none.
        rejects: How many replies and lessons were refused, by reason.
    """

    summaries: Mapping[int, str]
    proposals: Sequence[Proposal]
    kept: int
    rejects: Counter[str]


class _Summary(msgspec.Struct, frozen=True):
    summary: str


class _Lessons(msgspec.Struct, frozen=True):
    lessons: list[Lesson]


class _Op(msgspec.Struct, frozen=True, kw_only=True):
    op: Literal["ADD", "UPDATE", "MERGE", "DELETE", "KEEP"]
    lesson: int | str | Lesson | None = None
    id: str | None = None
    ids: list[str] = []
    text: str | None = None
    when: str | None = None
    kind: Literal["do", "avoid"] | None = None
    reason: str = ""


class _Ops(msgspec.Struct, frozen=True):
    ops: list[_Op]


Reply = TypeVar("Reply", _Summary, _Lessons, _Ops)


class Learner:
    """Compares the attempts of groups; safe to use from several threads.

    Every reply is stored before it is used, so that a run that is led again asks for none twice.
    It knows the tasks of the split that teaches, and no other.

    Args:
        store: The store, for itself.
        run_id: The run.
        config: Its settings.
        models: Its models.
        packs: Its packs by domain.
        tasks: The tasks that teach.
    """

    def __init__(  # noqa: PLR0917  # made in one place
        self, store: Store, run_id: str, config: Config, models: Models, packs: Mapping[str, Pack],
        tasks: Iterable[Task],
    ) -> None:  # fmt: skip
        self._run_id = run_id
        self._config = config
        self._models = models
        self._packs = packs
        self._leaks = Leaks(task.text for task in tasks)
        self._store = store
        self._using = threading.Lock()

    def close(self) -> None:
        """Close the connection to the store."""
        with self._using, closing(self._store):
            pass

    def study(self, group: Group, pool: Sequence[Experience]) -> Study:
        """Return what is learned from an informative group.

        Args:
            group: The group.
            pool: The lessons in force.

        Raises:
            StoppedError: The run makes no more calls.
            SurroundingsError: The provider fails.
        """
        rejects = Counter[str]()
        summaries = self._summaries(group, rejects)
        lessons = self._lessons(group, summaries, rejects)
        if not lessons:
            return Study(summaries, [], 0, rejects)
        own = [lesson for lesson in pool if lesson.domain == group.task.domain]
        proposals, kept = self._proposals(group, lessons, own, rejects)
        return Study(summaries, proposals, kept, rejects)

    def _summaries(self, group: Group, rejects: Counter[str]) -> dict[int, str]:
        summaries = {}
        for member in group.valid:
            data = _attempt_text(group, member)
            key = f"{group.group_id}/{member.number}"

            def fits(reply: _Summary) -> bool:
                return 0 < count_words(reply.summary) <= MAX_WORDS

            reply = self._ask("summarize", group, key, data, _Summary, fits=fits, words=MAX_WORDS)
            if reply is None:
                rejects["unparsed"] += 1
            elif not fits(reply):
                rejects["too_many_words"] += 1
            else:
                summaries[member.number] = " ".join(scrub_text(reply.summary).split())
        return summaries

    def _lessons(
        self, group: Group, summaries: Mapping[int, str], rejects: Counter[str]
    ) -> list[Lesson]:
        """Return the lessons of a group that are not refused."""
        data = _distinct(group, summaries, self._config.lessons_per_group)
        answer = group.task.expected
        first = {**data, "expected": answer} if answer else data
        lessons = self._extract(group, "extract", first, rejects)
        if any(self._leaks.of(_whole(each), group.task.query_id) for each in lessons):
            rejects["leak"] += 1
            lessons = self._extract(group, "again", data, rejects)
        return [each for each in lessons if self._is_sound(each, group, rejects)]

    def _extract(
        self, group: Group, name: str, data: JsonObject, rejects: Counter[str]
    ) -> Sequence[Lesson]:
        def fits(reply: _Lessons) -> bool:
            return all(count_words(each.text) <= self._config.max_words for each in reply.lessons)

        reply = self._ask(
            "extract", group, f"{group.group_id}/{name}", data, _Lessons, fits=fits,
            words=self._config.max_words,
        )  # fmt: skip
        if reply is None:
            rejects["unparsed"] += 1
            return []
        return reply.lessons[: self._config.lessons_per_group]

    def _is_sound(self, lesson: Lesson, group: Group, rejects: Counter[str]) -> bool:
        """Return whether a lesson can be stored, and count why it cannot."""
        problem = lesson_problem(lesson, self._config)
        if problem is None and self._leaks.of(_whole(lesson), group.task.query_id):
            problem = "leak"
        if problem is not None:
            rejects[problem] += 1
        return problem is None

    def _proposals(
        self, group: Group, lessons: Sequence[Lesson], pool: Sequence[Experience],
        rejects: Counter[str],
    ) -> tuple[list[Proposal], int]:  # fmt: skip
        """Return what becomes of the lessons and the pool, and how often nothing does."""
        data: JsonObject = {
            "lessons": [
                {"lesson": number, **msgspec.to_builtins(each)}
                for number, each in enumerate(lessons)
            ],
            "pool": [
                {
                    "id": each.id, "version": each.version, "kind": each.kind, "when": each.when,
                    "text": each.summary32,
                }
                for each in sorted(pool, key=lambda each: each.id)
            ],
        }  # fmt: skip
        reply = self._ask("optimize", group, f"{group.group_id}/optimize", data, _Ops)
        if reply is None:
            rejects["unparsed"] += 1
            return [], 1
        known = {each.id: each for each in pool}
        proposals = []
        for op in reply.ops:
            proposal = _proposal(op, group, lessons, known)
            if isinstance(proposal, str):
                rejects[proposal] += 1
            elif proposal is not None and (
                proposal.lesson is None or self._is_sound(proposal.lesson, group, rejects)
            ):
                proposals.append(proposal)
        return proposals, sum(op.op == "KEEP" for op in reply.ops)

    def _ask(  # noqa: PLR0913, PLR0917  # called in three places
        self, role: Role, group: Group, key: str, data: JsonObject, kind: type[Reply], *,
        fits: Callable[[Reply], bool] | None = None, words: int = MAX_WORDS,
    ) -> Reply | None:  # fmt: skip
        """Return a reply that fits its schema; ``None`` if there is none after three tries."""
        key = f"{role}/{key}"
        with self._using:
            known = self._store.experience.reply(self._run_id, key)
        if known is None:
            known = self._fetch(role, group, key, data, kind, fits, words)
            with self._using:
                self._store.experience.keep_reply(self._run_id, key, known)
        reply = known["reply"]
        return None if reply is None else msgspec.convert(reply, kind)

    def _fetch(  # noqa: PLR0913, PLR0917  # called in one place
        self, role: Role, group: Group, key: str, data: JsonObject, kind: type[Reply],
        fits: Callable[[Reply], bool] | None, words: int,
    ) -> JsonObject:  # fmt: skip
        """Ask a model until its reply fits, and return it with what it used."""
        system, user = self._packs[group.task.domain].texts[role], as_data(data)
        answers: list[Answer] = []
        reply: Reply | None = None
        shortened = False
        while len(answers) < TRIES + shortened:
            answer = self._call(system, user, seed_of(self._config.seed, key, len(answers)))
            if answer is None:
                break
            answers.append(answer)
            known, error = parse(answers[-1].text, kind)
            if known is None:
                user = f"{as_data(data)}\n\nYour last answer was refused: {error}"
                continue
            reply = known
            if fits is None or fits(known) or shortened:
                break
            shortened = True
            user = f"{as_data(data)}\n\n{SHORTEN.format(words=words)}\n{as_data(_plain(known))}"
        return {
            "role": role,
            "reply": None if reply is None else msgspec.to_builtins(reply),
            "calls": len(answers),
            "input_tokens": sum(answer.input_tokens for answer in answers),
            "output_tokens": sum(answer.output_tokens for answer in answers),
            "usd": _sum(answer.usd for answer in answers),
            "latency_ms": sum(1000 * (each.ended_at - each.started_at) for each in answers),
        }

    def _call(self, system: str, user: str, seed: int) -> Answer | None:
        """Ask the model once; trouble is waited out twice.

        Returns:
            ``None`` if the model itself fails, which ends no run: a group teaches nothing.

        Raises:
            SurroundingsError: It cannot be reached; the run can be resumed.
        """
        for left in (2, 1, 0):
            try:
                return self._models.call(
                    self._config.learner_model, system=system, user=user, seed=seed,
                    temperature=0.0, max_tokens=MAX_TOKENS,
                )  # fmt: skip
            except StoppedError:
                raise
            except SurroundingsError as error:
                if not left:
                    raise
                threading.Event().wait(min(error.retry_after_s or 0.5, 30.0))
            except Exception as error:  # noqa: BLE001  # whatever a model of the user's raises
                if not left:
                    effect = "a group teaches nothing"
                    logger().warning("learner_failed", error=text_of(error), effect=effect)
        return None


def lesson_problem(lesson: Lesson, config: Config) -> str | None:
    """Return why a lesson cannot be stored: ``too_many_words`` or ``unsafe_text`` with its kinds.

    Both parts are judged, by themselves and together.
    """
    when = lesson.when and text_problem(lesson.when, max_words=MOST_WHEN_WORDS, tools=config.tools)
    text = text_problem(lesson.text, max_words=config.max_words, tools=config.tools)
    together = text_problem(
        _whole(lesson), max_words=MOST_WHEN_WORDS + MAX_WORDS, tools=config.tools
    )
    known = [problem for problem in (text, when, together) if problem]
    return known[0] if known else None


def as_data(data: object) -> str:
    """Return data as JSON between markers that it cannot hold."""
    text = json.dumps(data, ensure_ascii=True, sort_keys=True)
    mark = f"DATA-{sha256(text.encode()).hexdigest()[:16]}"
    return f"<<<{mark}\n{text}\n{mark}>>>"


def parse(text: str, kind: type[Reply]) -> tuple[Reply | None, str]:
    """Return the reply in a model's answer, or why there is none.

    It is the last JSON object that fits: models think aloud before it, and put fences around it.
    """
    text = text[-LONGEST_REPLY:]
    found, why, start = None, "it holds no JSON object", text.find("{")
    while start >= 0:
        try:
            content, end = DECODER.raw_decode(text, start)
            found = msgspec.convert(content, kind)
        except (ValueError, RecursionError) as error:  # no JSON, or another object
            why, end = str(error)[:200], start + 1
        start = text.find("{", end)
    return found, "" if found is not None else why


def _plain(reply: object) -> JsonObject:
    plain: JsonObject = msgspec.to_builtins(reply)
    return plain


def _sum(costs: Iterable[float | None]) -> float | None:
    known = [*costs]
    return None if None in known else sum(cost for cost in known if cost is not None)


def _whole(lesson: Lesson) -> str:
    return f"{lesson.when} {lesson.text}".strip()


def _attempt_text(group: Group, member: Member) -> JsonObject:
    """Return an attempt as the learner reads it."""
    attempt = member.attempt or Attempt()
    return {
        "task": group.task.prompt,
        "attempt": member.number,
        "output": (attempt.output or "")[:LONGEST_OUTPUT],
        "tools": msgspec.to_builtins(attempt.tools),
        "error": attempt.note,
        "notes": [lesson.summary32 for lesson in group.injected],
        "checks": attempt.checks,
        "score": member.reward.gt,
    }


def _distinct(group: Group, summaries: Mapping[int, str], most: int) -> JsonObject:
    """Return the attempts of a group as the learner compares them: of equal ones the first."""
    clusters: dict[tuple[str | None, float | None], list[Member]] = {}
    for member in group.valid:
        output = member.attempt.output if member.attempt else None
        clusters.setdefault((output, member.reward.gt), []).append(member)
    ranked = sorted(clusters.values(), key=lambda own: (-(own[0].reward.gt or 0.0), own[0].number))
    half = MOST_SHOWN // 2
    kept = ranked[:half] + ranked[half:][-half:]
    attempts = [
        {
            **{k: v for k, v in _attempt_text(group, own[0]).items() if k not in {"task", "notes"}},
            "summary": summaries.get(own[0].number, ""),
            "times": len(own),
        }
        for own in sorted(kept, key=lambda own: own[0].number)
    ]
    return {
        "task": group.task.prompt,
        "notes": [lesson.summary32 for lesson in group.injected],
        "attempts": attempts,
        "most_lessons": most,
    }


def _proposal(
    op: _Op, group: Group, lessons: Sequence[Lesson], pool: Mapping[str, Experience]
) -> Proposal | str | None:
    """Return what a model's operation proposes, why it is refused, or ``None`` for none."""
    ids = [*op.ids, *([op.id] if op.id and op.op != "ADD" else [])]
    if op.op == "KEEP":
        return None
    if op.op != "ADD" and (not ids or any(id_ not in pool for id_ in ids)):
        return "unknown_id"
    if op.op == "DELETE":
        return Proposal(op.op, group, ids[:1], None, op.reason)
    if op.op == "MERGE" and len({*ids}) < 2:
        return "unknown_id"
    lesson = _lesson_of(op.lesson, lessons)
    if lesson is None and (op.lesson is not None or not op.text):
        return "unknown_lesson"
    base = lesson or Lesson(text=op.text or "")
    known = pool.get(ids[0]) if ids else None
    worded = Lesson(
        kind=op.kind or (known.kind if known and lesson is None else base.kind),
        when=base.when if op.when is None else op.when,
        text=op.text or base.text,
    )
    if op.op == "ADD":
        ids = []
    return Proposal(op.op, group, ids if op.op == "MERGE" else ids[:1], worded, op.reason)


def _lesson_of(name: int | str | Lesson | None, lessons: Sequence[Lesson]) -> Lesson | None:
    """Return the lesson that an operation names, by its number or its text."""
    if isinstance(name, Lesson):
        name = name.text
    if isinstance(name, str) and name.isdecimal():
        name = int(name)
    if isinstance(name, int):
        return lessons[name] if 0 <= name < len(lessons) else None
    return next((lesson for lesson in lessons if lesson.text == name), None)
