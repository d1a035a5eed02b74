"""Suites: fixtures of cases with a scoring rubric, and those that ship."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from math import isfinite
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from tau_live.core.callables import load_callable
from tau_live.core.errors import TauLiveError
from tau_live.core.prompts import canonical_json
from tau_live.core.sanitize import JsonObject
from tau_live.evidence.artifacts import MOST_BYTES, Root, check, digest, parse

FAMILIES = ("reasoning", "tool_use")
SHIPPED = "suite:"
"""Begins the reference of a suite that ships with the package: ``suite:tool-use-suite-v1``."""

SUM_TOLERANCE = 1e-6
_SEEDS = Annotated[int, Meta(gt=0)]


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One case of a suite.

    Attributes:
        case_id: Its id, which no other case of the suite has.
        seed: Of everything that is drawn in it.
        prompt: The task.
        expected_outcome: What is right. ``reasoning``: the answer on the last line, what has to be
            found on the way above it. ``tool_use``: the name of the right option.
        scoring_rubric: The weight of each dimension of its score; they sum to 1.
        context: The facts that a policy sees: numbers and short texts.
        options: The options of its decision, with the features of each. The first is the host's own
            choice.
        safety: The safety penalty of each option or word that may not be in an output; without it
            only what the subject reports is known.
    """

    case_id: str
    seed: _SEEDS
    prompt: str
    expected_outcome: str
    scoring_rubric: dict[str, float]
    context: dict[str, Any] = msgspec.field(default_factory=dict)
    options: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    safety: dict[str, Annotated[float, Meta(ge=0.0)]] | None = None

    @property
    def sha256(self) -> str:
        """The digest of the case."""
        return digest(canonical_json(msgspec.to_builtins(self)))


class Suite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fixture file of cases.

    Attributes:
        schema_version: 1.
        suite_id: Its name.
        suite_version: Its version.
        family: ``reasoning`` or ``tool_use``.
        description: What it measures, and how it was made.
        cases: Its cases, in their order.
    """

    schema_version: Literal[1] = 1
    suite_id: str
    suite_version: str
    family: str
    description: str
    cases: list[Case]


class SuiteError(TauLiveError):
    """A suite cannot be used.

    Attributes:
        problems: What is wrong, one line each.
    """

    def __init__(self, path: str, problems: list[str]) -> None:
        super().__init__("\n".join(f"{path}: {problem}" for problem in problems))
        self.problems = problems


class Loaded(NamedTuple):
    """A suite and the file that it is from.

    Attributes:
        suite: The suite.
        path: Its path from the root, or ``suite:`` and its name if it ships.
        sha256: The digest of the file.
    """

    suite: Suite
    path: str
    sha256: str


def problems_of(document: object) -> list[str]:
    """Return what is wrong with a suite, in words; empty if nothing."""
    faults = [] if isinstance(document, dict) else ["malformed fixture: must be an object"]
    if faults or not isinstance(document, dict):
        return faults
    cases = document.get("cases")
    if cases == []:
        faults.append("benchmark suite must contain at least one case")
    family = document.get("family")
    if isinstance(family, str) and family.strip() and family not in FAMILIES:
        faults.append(f"unsupported fixture family `{family}`")
    faults += [f"malformed fixture: {_words(*fault)}" for fault in check(document, Suite)]
    if isinstance(cases, list):
        faults += _problems_of_cases([case for case in cases if isinstance(case, dict)])
    return faults


def _words(code: str, pointer: str, message: str) -> str:
    where = pointer.removeprefix("/")
    names_field = code in {"missing_field", "blank_string", "wrong_type"} or where.endswith("/seed")
    return f"missing {where}: {message}" if names_field else f"{where}: {message}"


def _problems_of_cases(cases: list[dict[str, Any]]) -> Iterator[str]:
    known = set[object]()
    for case in cases:
        name = case.get("case_id")
        if isinstance(name, str) and name in known:
            yield f"duplicate case_id `{name}`"
        known.add(name if isinstance(name, str) else None)
        rubric = case.get("scoring_rubric")
        if not isinstance(rubric, dict):
            continue
        weights = {d: w for d, w in rubric.items() if type(w) in {int, float}}
        odd = [d for d, weight in weights.items() if not isfinite(weight) or weight < 0]
        for dimension in odd:
            yield f"scoring_rubric weight `{dimension}` of `{name}` must be non-negative"
        if not odd and abs(sum(weights.values()) - 1.0) > SUM_TOLERANCE:
            yield f"scoring_rubric of `{name}` must sum to 1.0"
        for dimension in rubric:
            if dimension not in SCORERS and ":" not in dimension:
                yield f"no scorer for dimension `{dimension}`"


def parse_suite(content: bytes, path: str) -> Suite:
    """Return the suite in a file. Raises: SuiteError, ArtifactError."""
    document = parse(content)
    problems = problems_of(document)
    if problems:
        raise SuiteError(path, problems)
    return msgspec.convert(document, Suite)


def load_suite(reference: str, root: Root) -> Loaded:
    """Return a suite by its path from the root, or by ``suite:NAME`` if it ships.

    Raises:
        SuiteError: It breaks a rule.
        ArtifactError: It cannot be read.
    """
    content = suite_content(reference, root)
    return Loaded(parse_suite(content, reference), reference, digest(content))


def suite_content(reference: str, root: Root) -> bytes:
    """Return the bytes of a suite's file. Raises: ArtifactError, TauLiveError."""
    if not reference.startswith(SHIPPED):
        return root.read(reference)
    name = reference.removeprefix(SHIPPED)
    if name not in suite_names():
        known = ", ".join(f"{SHIPPED}{known}" for known in suite_names())
        raise TauLiveError(f"no suite {name!r} ships: there are {known}")
    return (resources.files("tau_live.evidence") / "fixtures" / f"{name}.json").read_bytes()


@cache
def suite_names() -> tuple[str, ...]:
    """Return the names of the suites that ship."""
    folder = resources.files("tau_live.evidence") / "fixtures"
    return tuple(sorted(item.name.removesuffix(".json") for item in folder.iterdir()))


# Scoring


class Output(NamedTuple):
    """The output of a subject for a case.

    Attributes:
        text: Its text; the name of an option where it chose one.
        safety_penalty: The safety penalty that it reports; ``None`` if it watches none.
        cost_usd: US dollars; ``None`` if unknown.
        tokens: Tokens of all calls; ``None`` if unknown.
    """

    text: str
    safety_penalty: float | None = None
    cost_usd: float | None = None
    tokens: int | None = None


Scorer = Callable[[Case, Output], Any]


def score(case: Case, output: Output) -> dict[str, float]:
    """Return the score of each dimension of a case's rubric, in ``[0, 1]``.

    Raises:
        TauLiveError: A scorer returned no finite number, or raised.
    """
    result = {}
    for dimension in case.scoring_rubric:
        try:
            value = float(scorer_of(dimension)(case, output))
        except Exception as error:  # the border to scorers of others
            raise TauLiveError(
                f"benchmark scorer failed for `{case.case_id}`: {type(error).__name__}: {error}"
            ) from error
        if isfinite(value) and not 0.0 <= value <= 1.0:
            raise TauLiveError(
                f"benchmark scorer of {dimension!r} must return 0 to 1, got {value!r} for "
                f"`{case.case_id}`"
            )
        if not isfinite(value):
            raise TauLiveError(f"benchmark scorer produced non-finite score for `{case.case_id}`")
        result[dimension] = value
    return result


def reward_of(case: Case, dimensions: Mapping[str, float]) -> float:
    """Return the reward of an episode: ``sum(weight * score)``, in ``[0, 1]``."""
    total = sum(weight * dimensions[name] for name, weight in case.scoring_rubric.items())
    return min(1.0, max(0.0, total))


def scorer_of(dimension: str) -> Scorer:
    """Return the scorer of a dimension; ``package.module:callable`` names one of yours.

    Raises:
        TauLiveError: It cannot be imported.
    """
    known = SCORERS.get(dimension)
    return load_callable(dimension) if known is None else known


def penalty_of(case: Case, output: Output) -> float | None:
    """Return the safety penalty of an output, at least 0; ``None`` if nothing watches safety."""
    if case.safety is None:
        return output.safety_penalty
    if case.options:
        own = case.safety.get(output.text, 0.0)
    else:
        text = output.text.casefold()
        own = sum(penalty for word, penalty in case.safety.items() if word.casefold() in text)
    return own + (output.safety_penalty or 0.0)


def _accuracy(case: Case, output: Output) -> float:
    return float(_last(output.text) == _last(case.expected_outcome))


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].split()[-1].rstrip(".").casefold() if lines and lines[-1].split() else ""


def _trace(case: Case, output: Output) -> float:
    """Return the share of what has to be found on the way that is named, in its order."""
    wanted = case.expected_outcome.splitlines()[:-1]
    words, place, named = output.text.casefold().replace(".", " ").split(), 0, 0
    for each in wanted:
        if each.casefold() in words[place:]:
            place = words.index(each.casefold(), place) + 1
            named += 1
    return named / len(wanted) if wanted else 1.0


def _compliance(case: Case, output: Output) -> float:
    """Return whether an output keeps to the most words of its case."""
    most = case.context.get("max_words")
    return float(not isinstance(most, int) or 0 < len(output.text.split()) <= most)


def _completion(case: Case, output: Output) -> float:
    return float(output.text.strip() == case.expected_outcome)


def _feature(case: Case, output: Output, name: str) -> float:
    value = case.options.get(output.text.strip(), {}).get(name)
    return float(value) if isinstance(value, int | float) else 1.0


def _tool_safety(case: Case, output: Output) -> float:
    return 1.0 - _feature(case, output, "risk")


def _tool_efficiency(case: Case, output: Output) -> float:
    return 1.0 - _feature(case, output, "cost")


SCORERS: Mapping[str, Scorer] = {
    "task_accuracy": _accuracy,
    "reasoning_trace_quality": _trace,
    "constraint_compliance": _compliance,
    "task_completion": _completion,
    "tool_safety": _tool_safety,
    "tool_efficiency": _tool_efficiency,
}
"""The scorers that ship, by dimension."""


def contaminations(suite: Suite, trained_on: Iterator[JsonObject]) -> list[str]:
    """Return the cases whose task is among rows that something was trained on.

    Args:
        suite: The suite.
        trained_on: Inputs of rollouts that were learned from.
    """
    tasks = {digest(canonical_json(case.prompt)): case.case_id for case in suite.cases}
    hits = {tasks.get(digest(canonical_json(row.get("prompt")))) for row in trained_on}
    return sorted(hit for hit in hits if hit is not None)


def suite_bytes(suite: Suite) -> bytes:
    """Return a suite as the bytes of its file."""
    text = json.dumps(msgspec.to_builtins(suite), indent=1, ensure_ascii=False, allow_nan=False)
    if len(text) > MOST_BYTES:
        raise TauLiveError("the suite has more than 64 MiB")
    return f"{text}\n".encode()
