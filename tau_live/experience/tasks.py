"""Tasks: what is attempted, in splits that share nothing, from files, callables and generators."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from tau_live.core.callables import load_callable
from tau_live.core.errors import ConfigError
from tau_live.core.prompts import canonical_json
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings.kinds import nearest
from tau_live.experience.checks import Check
from tau_live.experience.families import FAMILIES, generate
from tau_live.experience.words import TaskText, normalise, spans

Split: TypeAlias = Literal["train", "validation", "test", "transfer"]

SPLITS: tuple[Split, ...] = ("train", "validation", "test", "transfer")

GENERATED: Mapping[Split, int] = {"train": 100, "validation": 100, "test": 200, "transfer": 0}
"""How many tasks of each split a generator makes."""

GENERATORS = frozenset({"families", "reasoning-gym"})

MOST_BYTES = 256 * 2**20
SHOWN = 5


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task.

    Attributes:
        query_id: Its name.
        prompt: The question.
        domain: Names its pack.
        family: Its kind, for people and for choosing scenarios.
        split: ``train`` teaches, ``validation`` keeps, ``test`` ships, ``transfer`` is other data.
        checks: Planned checks, at least one.
        expected: The expected answer as text, which no lesson may hold.
        hidden: Whatever the checks need; neither agent nor learner sees it.
    """

    query_id: Annotated[str, Meta(min_length=1, max_length=200)]
    prompt: Annotated[str, Meta(min_length=1)]
    domain: Annotated[str, Meta(min_length=1)]
    family: str = ""
    split: Split
    checks: Annotated[list[Check], Meta(min_length=1)]
    expected: str | None = None
    hidden: object = None

    @property
    def text(self) -> TaskText:
        """What a lesson may give away."""
        return TaskText(self.query_id, self.prompt, self.expected)

    def for_agent(self) -> JsonObject:
        """Return what the agent sees."""
        return {
            "query_id": self.query_id,
            "prompt": self.prompt,
            "domain": self.domain,
            "family": self.family,
        }


Tasks: TypeAlias = Mapping[Split, Sequence[Task]]


def load_tasks(source: str, folder: Path, *, seed: int, scenarios: Sequence[str] = ()) -> Tasks:
    """Return the tasks of a source by split, checked.

    Args:
        source: A file of JSON Lines, ``families:NAME,NAME`` for our own generators,
            ``reasoning-gym:NAME,NAME``, or ``package.module:callable``, which returns tasks.
        folder: The base of a relative path.
        seed: Of generators.
        scenarios: Query ids or families to keep; all if empty.

    Raises:
        ConfigError: The source cannot be read, a task is malformed, or splits share a task.
    """
    tasks = _read(source, folder, seed=seed)
    if scenarios:
        known = {name for task in tasks for name in (task.query_id, task.family)}
        unknown = [name for name in scenarios if name not in known]
        if unknown:
            raise ConfigError([f"Unknown evaluation scenarios: {', '.join(unknown)}"])
        kept = {*scenarios}
        tasks = [task for task in tasks if kept & {task.query_id, task.family}]
    if not any(task.split == "train" for task in tasks):
        raise ConfigError(["No evaluation scenarios available for the TF-GRPO learning schedule."])
    is_generated = source.partition(":")[0] in GENERATORS  # the wording of a family is its own
    problems = [*_repeats(tasks), *_overlap(tasks, words=not is_generated)]
    if problems:
        more = f"and {len(problems) - SHOWN} more" if len(problems) > SHOWN else None
        raise ConfigError([*problems[:SHOWN], *([more] if more else [])])
    return {split: [task for task in tasks if task.split == split] for split in SPLITS}


def digest_of_split(tasks: Sequence[Task]) -> str:
    """Return the digest of a split, SHA-256 in hex."""
    return sha256(canonical_json([msgspec.to_builtins(task) for task in tasks])).hexdigest()


def _read(source: str, folder: Path, *, seed: int) -> list[Task]:
    kind, _, names = source.partition(":")
    if kind == "families":
        return [_task(data, source) for data in _generate(names.split(","), seed)]
    if kind == "reasoning-gym":
        return [_task(data, source) for data in _reasoning_gym(names.split(","), seed)]
    if source.endswith((".jsonl", ".ndjson")) or (folder / source).is_file():
        return _from_lines(folder / source)
    returned = load_callable(source)()
    if not isinstance(returned, Iterable):
        raise ConfigError([f"{source} must return tasks, got {type(returned).__name__}"])
    return [each if isinstance(each, Task) else _task(each, source) for each in returned]


def _from_lines(path: Path) -> list[Task]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError([f"{path} has more than {MOST_BYTES // 2**20} MiB"])
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path} cannot be read: {error}"]) from error
    tasks = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                data = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ConfigError([f"{path}, line {number}: {error}"]) from error
            tasks.append(_task(data, f"{path}, line {number}"))
    return tasks


def _task(data: object, where: str) -> Task:
    try:
        return msgspec.convert(data, Task)
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigError([f"{where}: {error}"]) from error


def _generate(names: Sequence[str], seed: int) -> list[JsonObject]:
    tasks: list[JsonObject] = []
    for name in names:
        if name not in FAMILIES:
            near = nearest(name, FAMILIES)
            hint = f"; did you mean {near}?" if near else f": there are {', '.join(FAMILIES)}"
            raise ConfigError([f"no family {name!r}{hint}"])
        for split, count in GENERATED.items():
            tasks += generate(name, split, count, seed=seed)
    return tasks


def _reasoning_gym(names: Sequence[str], seed: int) -> list[JsonObject]:
    """Return tasks of reasoning-gym; each split has a seed of its own."""
    if find_spec("reasoning_gym") is None:
        raise ConfigError(
            ["reasoning-gym tasks need an extra: pip install 'tau-live[tfgrpo-tasks]'"]
        )
    import reasoning_gym

    tasks: list[JsonObject] = []
    for name in names:
        seen = set[str]()
        for place, (split, count) in enumerate(GENERATED.items()):
            try:
                made = reasoning_gym.create_dataset(
                    name, size=4 * count or 1, seed=seed * len(SPLITS) + place
                )
            except ValueError as error:
                raise ConfigError([f"reasoning-gym: {error}"]) from error
            fresh: dict[str, JsonObject] = {}
            for n in range(4 * count):
                question = normalise(made[n]["question"])
                if question not in seen and len(fresh) < count:
                    fresh.setdefault(question, made[n])
            seen |= {*fresh}
            tasks += [
                {
                    "query_id": f"{name}-{split}-{number}",
                    "prompt": each["question"],
                    "domain": name,
                    "family": name,
                    "split": split,
                    "expected": None if each["answer"] is None else str(each["answer"]),
                    "checks": [
                        {
                            "kind": "callable",
                            "callable": f"{__name__}:reasoning_gym_score",
                            "value": json.loads(json.dumps({**each, "name": name}, default=str)),
                        }
                    ],
                }
                for number, each in enumerate(fresh.values())
            ]
    return tasks


def reasoning_gym_score(output: str, value: Mapping[str, object]) -> float:
    """Return reasoning-gym's own score of an output."""
    import reasoning_gym

    score = reasoning_gym.get_score_answer_fn(value["name"])
    entry = {"answer": value["answer"], "metadata": value["metadata"]}
    return float(min(max(score(answer=output.strip(), entry=entry), 0.0), 1.0))


def _repeats(tasks: Sequence[Task]) -> list[str]:
    known: set[str] = set()
    problems = []
    for task in tasks:
        if task.query_id in known:
            problems.append(f"two tasks are called {task.query_id}")
        known.add(task.query_id)
    return problems


def _overlap(tasks: Sequence[Task], *, words: bool) -> list[str]:
    """Return what tasks of different splits share: their text, or eight words in a row.

    Words that several tasks of each split have are the wording of their family, and no task.
    """
    owners: dict[str, list[Task]] = {}
    for task in tasks:
        text = normalise(task.prompt)
        for part in {text, *(" ".join(span) for span in (spans(text) if words else ()))}:
            owners.setdefault(part, []).append(task)
    problems: dict[tuple[str, str], str] = {}
    for part, own in owners.items():
        counts = Counter(task.split for task in own)
        first = own[0]
        is_text = part == normalise(first.prompt)
        if len(counts) > 1 and (is_text or 1 in counts.values()):
            other = next(task for task in own if task.split != first.split)
            problems.setdefault(
                (first.query_id, other.query_id),
                f"{first.query_id} ({first.split}) and {other.query_id} ({other.split}) share "
                f"'{part}'",
            )
    return [*problems.values()]
