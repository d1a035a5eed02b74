"""The offline demo of ``tau-live optimize``: a house's rules of triage are missing from a prompt.

Three stub models, each a function of the texts that it is sent and of the seed alone. The task
model triages support tickets: it guesses, and follows the rules that it can read in its prompt.
The critic and the editor know neither the rules nor the tickets: they see executed examples, look
for phrases that the failing ones share, and are wrong at times, as models are. So that each
candidate has to be executed. A config names them ``function/tau_live.prompts.demo:task_model``.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tau_live.core.files import make_folders, write_whole
from tau_live.core.sanitize import JsonObject
from tau_live.prompts.tickets import (
    FIELDS,
    MONEY,
    NUMBER,
    PRIORITIES,
    QUEUES,
    Rule,
    guess,
    reply,
    ticket,
    words_of,
)

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models.function import AgentInfo

PROMPT = """\
You triage support tickets. Answer with one line: queue=...; priority=...; amount=...
The queues are billing, technical, general, refunds, legal and sales.
The priorities are low, normal, high and urgent. Without an amount of money, amount is none."""

RULES = (
    Rule("queue", "refunds", ("charged twice",)),
    Rule("priority", "urgent", ("whole team",)),
    Rule("amount", "24.50 EUR"),
)
"""The rules of the demo's house, which no model knows."""

OPTIMIZE, VALIDATE, TEST = 40, 60, 60
ROUNDS = 6

VALUES = {
    **dict.fromkeys(QUEUES, "queue"),
    **dict.fromkeys(PRIORITIES, "priority"),
}
QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”|`([^`]+)`')
DENIED = re.compile(r"\b(?:not|never|instead of|rather than)(?: as| to| in)? \w+")
WRITING = frozenset({"as", "format", "formatted", "like", "notation", "write", "written"})
FIELD_WORDS = frozenset({"queue", "priority", "urgency", "amount", "route", "send", "team"})
FILLERS = frozenset(
    """
    a about affected all also always am an and answer any anyone are as at be been being belong
    belongs by case concern concerned concerning concerns contain containing contains could
    customer customers do does every everything field for form from get gets give go goes had has
    have his how i if in into involve involves involving is it its line make mark me mention
    mentioned mentioning mentions must my of on or our please priority queue refer reports route
    say saying says send set should so somebody someone than that the their them then there
    they this ticket tickets to too treat urgency use user value was we were what when whenever
    where which who whose will with you your
    """.split()  # noqa: SIM905  # a list of words
)
"""Words that begin and end no phrase, and say nothing about when a rule holds."""

BLOCK = re.compile(r"^<<<\n(.*?)\n>>>$", re.MULTILINE | re.DOTALL)
FINDING = re.compile(r'where (\w+)=(\w+) was expected say "([^"]+)"')
NOTATION = re.compile(r'(\w+) is expected to be written as in "([^"]+)"')

LONGEST = 3
"""The most words of a phrase."""
REMARKS = 4
"""The most remarks of a critique."""
DISTRACTION = 0.15
"""How often the critic takes another phrase of a failing example for the cause."""
PLATITUDE, AMNESIA, CARELESSNESS = 0.12, 0.08, 0.08
"""How often the editor writes nothing of use, forgets the prompt, or forgets the condition."""

PLATITUDES = (
    "Read each message carefully and be accurate.",
    "Think step by step before you answer.",
    "Be concise, polite and professional.",
)
PHRASINGS = (
    'If a ticket says "{cue}", {field} is {value}.',
    'Tickets that mention "{cue}" get {field} {value}.',
    'Set {field} to {value} whenever it says "{cue}".',
)


class Example(NamedTuple):
    """An executed example, as a critic is shown it: texts, and the fields of both lines."""

    text: str
    expected: dict[str, str]
    output: dict[str, str]


def config(seed: int = 0) -> JsonObject:
    """Return the demo's config of ``tau-live optimize``; its tickets are drawn by ``seed``."""
    rng = random.Random(f"demo {seed}")  # noqa: S311 - tickets, not secrets
    frequent = [cue for rule in RULES for cue in rule.cues]
    drawn = [ticket(rng, 1000 + n, frequent) for n in range(OPTIMIZE + VALIDATE + TEST)]
    rows = [{"prompt": text, "expected": reply(text, RULES)} for text in drawn]
    here = f"function/{__name__}"
    return {
        "optimize": rows[:OPTIMIZE],
        "validate": rows[OPTIMIZE : OPTIMIZE + VALIDATE],
        "test": rows[OPTIMIZE + VALIDATE :],
        "resources": {"system_prompt": PROMPT},
        "model": f"{here}:task_model",
        "seed": seed,
        "search": {
            "algorithm": "beam",
            "rounds": ROUNDS,
            "critic_model": f"{here}:critic_model",
            "editor_model": f"{here}:editor_model",
        },
    }


def write_demo(folder: Path) -> Path:
    """Write the demo's config into a folder, and return its path.

    Raises:
        OSError: It cannot be written.
    """
    make_folders(folder)
    path = folder / "optimize-demo.json"
    write_whole(path, json.dumps(config(), indent=1).encode())
    return path


def task_model(messages: "list[ModelMessage]", info: "AgentInfo") -> "ModelResponse":
    """Triage a ticket by the rules of the system prompt."""
    system, user, _ = _read(messages, info)
    return _response(triage(system, user), system + user)


def critic_model(messages: "list[ModelMessage]", info: "AgentInfo") -> "ModelResponse":
    """Say what failing examples have in common."""
    system, user, seed = _read(messages, info)
    return _response(critique(user, seed=seed), system + user)


def editor_model(messages: "list[ModelMessage]", info: "AgentInfo") -> "ModelResponse":
    """Write the prompt anew, after a critique."""
    system, user, seed = _read(messages, info)
    return _response(edit(user, seed=seed), system + user)


def triage(prompt: str, text: str) -> str:
    """Return the task model's answer to a ticket."""
    if not all(f"{field}=" in prompt for field in FIELDS):
        known = guess(text)
        return f"This looks like a {known['queue']} ticket of {known['priority']} priority."
    return reply(text, list(rules_in(prompt)))


def rules_in(prompt: str) -> Iterator[Rule]:
    """Yield the rules that the task model reads in a prompt, in their order.

    A sentence is a rule if it names one value of a field: for tickets that say all that is in
    quotation marks, or else all its words but fillers. Without any it must name the field, and
    holds for all tickets. One that names several values of a field is a list.
    """
    for sentence in re.split(r"\n|(?<=[.!?;])\s+", prompt):
        quotes = ["".join(groups) for groups in QUOTED.findall(sentence)]
        words = words_of(DENIED.sub("", QUOTED.sub("", sentence)))
        money = [quote for quote in quotes if MONEY.fullmatch(quote)]
        if money and "amount" in " ".join(words) and WRITING.intersection(words):
            yield Rule("amount", money[-1])
            continue
        values = [word for word in words if word in VALUES]
        fields = Counter(VALUES[value] for value in values)
        rest = [word for word in words if word not in FILLERS and word not in VALUES]
        cues = tuple(quotes or rest)
        if cues or FIELD_WORDS.intersection(words):
            for value in values:
                if fields[VALUES[value]] == 1:
                    yield Rule(VALUES[value], value, cues)


def critique(text: str, *, seed: int) -> str:
    """Return what the failing examples in the critic's message have in common.

    Args:
        text: Holds the examples between markers: a JSON array, or an object a line.
        seed: Draws among what explains them equally well, and the mistakes.
    """
    rng = random.Random(f"critic {seed}:{text}")  # noqa: S311 - mistakes, not secrets
    examples = list(_examples(text))
    remarks = [
        remark
        for field in FIELDS
        for remark in (
            _notations(examples) if field == "amount" else _causes(rng, examples, field=field)
        )
    ]
    ordered = sorted(remarks, key=lambda remark: -remark[0])[:REMARKS]
    return "\n".join(remark for _, remark in ordered) or "Every example is right."


def edit(text: str, *, seed: int) -> str:
    """Return a new prompt, of a message that holds the prompt and a critique between markers."""
    rng = random.Random(f"editor {seed}:{text}")  # noqa: S311 - mistakes, not secrets
    prompt, *others = [block for block in _blocks(text) if isinstance(block, str)]
    known = set(rules_in(prompt))
    findings = [rule for rule in _findings("\n".join(others)) if rule not in known]
    slip = rng.random()
    if not findings or slip < PLATITUDE:
        return f"{prompt}\n{rng.choice(PLATITUDES)}"
    chosen = findings[: rng.choices((1, 2, len(findings)), (0.6, 0.25, 0.15))[0]]
    if slip < PLATITUDE + AMNESIA:
        return "\n".join(["You triage support tickets.", *_phrase_rules(rng, chosen)])
    if slip < PLATITUDE + AMNESIA + CARELESSNESS:
        chosen = [rule._replace(cues=()) for rule in chosen]
    about = {(rule.field, rule.cues) for rule in chosen}
    kept = [
        line
        for line in prompt.split("\n")
        if not about.intersection((rule.field, rule.cues) for rule in rules_in(line))
    ]
    return "\n".join([*kept, *_phrase_rules(rng, chosen)])


def _causes(
    rng: random.Random, examples: Sequence[Example], *, field: str
) -> Iterator[tuple[int, str]]:
    """Yield remarks on a field, each with the number of examples that it is about."""
    wrong = [each for each in examples if each.output.get(field) != each.expected[field]]
    for value in sorted({each.expected[field] for each in wrong}):
        failing = [each for each in wrong if each.expected[field] == value]
        others = [each for each in examples if each.expected[field] != value]
        known = Counter(phrase for each in failing for phrase in _phrases(each.text))
        against = Counter(phrase for each in others for phrase in _phrases(each.text))
        merit = {phrase: known[phrase] - 2 * against[phrase] for phrase in sorted(known)}
        most = max(merit.values())
        best = [phrase for phrase in merit if merit[phrase] == most]
        if most > 1:
            length = max(len(phrase.split()) for phrase in best)
            best = [phrase for phrase in best if len(phrase.split()) == length]
        cue = rng.choice(sorted(known) if rng.random() < DISTRACTION else best)
        output = failing[0].output.get(field, "nothing")
        where = f'where {field}={value} was expected say "{cue}"'
        yield known[cue], f"{known[cue]} of {len(failing)} {where}; the answer was {output}."


def _notations(examples: Sequence[Example]) -> Iterator[tuple[int, str]]:
    """Yield a remark if amounts have the right number but are written in another way."""
    pairs = [(each.output.get("amount", ""), each.expected["amount"]) for each in examples]
    same = [
        (output, expected)
        for output, expected in pairs
        if output != expected and _numbers(output) == _numbers(expected) != []
    ]
    if same:
        output, expected = same[0]
        yield len(same), f'amount is expected to be written as in "{expected}", not "{output}".'


def _numbers(text: str) -> list[float]:
    return [float(number) for number in NUMBER.findall(text)]


def _phrases(text: str) -> set[str]:
    """Return the phrases of a ticket that could be the cause of something."""
    found = set()
    for part in re.split(r"\n|(?<=[.!?;])\s+", text):
        words = words_of(part)
        for start in range(len(words)):
            for end in range(start + 1, min(start + LONGEST, len(words)) + 1):
                phrase = words[start:end]
                bare = FILLERS.isdisjoint((phrase[0], phrase[-1]))
                if bare and not any(word[0].isdigit() for word in phrase):
                    found.add(" ".join(phrase))
    return found


def _findings(critique: str) -> Iterator[Rule]:
    for line in critique.split("\n"):
        for field, value, cue in FINDING.findall(line):
            yield Rule(field, value, (cue,))
        for field, example in NOTATION.findall(line):
            yield Rule(field, example)


def _phrase_rules(rng: random.Random, rules: Iterable[Rule]) -> Iterator[str]:
    for rule in rules:
        if rule.field == "amount":
            yield f'Write the amount as in "{rule.value}".'
        elif not rule.cues:
            yield f"Set {rule.field} to {rule.value}."
        else:
            phrasing = rng.choice(PHRASINGS)
            yield phrasing.format(cue=rule.cues[0], field=rule.field, value=rule.value)


def _blocks(text: str) -> Iterator[object]:
    """Yield what stands between markers: JSON where it is that, else the text."""
    for block in BLOCK.findall(text):
        try:
            yield json.loads(block)
        except ValueError:
            yield block


def _examples(text: str) -> Iterator[Example]:
    for block in _blocks(text):
        records = _lines(block) if isinstance(block, str) else block
        for record in records if isinstance(records, list) else []:
            if isinstance(record, dict):
                task = record["input"]
                text = str(task["prompt"] if isinstance(task, dict) else task)
                expected = _fields(str(record["expected"]))
                if expected.keys() >= set(FIELDS):
                    yield Example(text, expected, _fields(str(record["output"])))


def _lines(block: str) -> list[object]:
    return [json.loads(line) for line in block.split("\n") if line.startswith("{")]


def _fields(line: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in line.split("; "))
    return {name: value for name, _, value in pairs}


def _read(messages: "list[ModelMessage]", info: "AgentInfo") -> tuple[str, str, int]:
    """Return the system prompt, the message, and the seed of a request."""
    parts = [part for message in messages for part in message.parts]
    system = "\n".join(str(part.content) for part in parts if part.part_kind == "system-prompt")
    user = "\n".join(str(part.content) for part in parts if part.part_kind == "user-prompt")
    return system, user, int((info.model_settings or {}).get("seed") or 0)


def _response(text: str, read: str) -> "ModelResponse":
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.usage import RequestUsage

    usage = RequestUsage(input_tokens=_tokens(read), output_tokens=_tokens(text))
    return ModelResponse(parts=[TextPart(text)], usage=usage, finish_reason="stop")


def _tokens(text: str) -> int:
    return ceil(len(text.encode()) / 4)
