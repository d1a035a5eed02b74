"""Checks of an attempt's output: planned with its task, and out of the agent's reach."""

import json
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from tempfile import TemporaryDirectory
from typing import Literal

import msgspec

from tau_live.core.callables import load_callable
from tau_live.core.errors import TauLiveError
from tau_live.experience.rewards import CheckResult
from tau_live.experience.words import normalise

Kind = Literal["equals", "contains", "regex", "number", "fields", "tests", "callable"]

TESTS_S = 5.0
"""The longest time of all tests of a function, in seconds."""

MOST_MEMORY = 512 * 2**20
MOST_OUTPUT = 1_000_000

NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
CODE = re.compile(r"```(?:python|py)?\n(.*?)```", re.DOTALL)


class CheckError(TauLiveError):
    """A check itself failed, which says nothing about the attempt."""


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A planned check.

    Attributes:
        kind: ``equals`` and ``contains`` compare words; ``regex`` is searched; ``number`` compares
            the last number; ``fields`` compares the members of a JSON object; ``tests`` calls a
            function of the output; ``callable`` is the user's own.
        value: What it compares with: text, a number, an object, or for ``tests``
            ``{"function": NAME, "cases": [[ARGUMENTS, RESULT], ...]}``; for ``callable`` anything.
        name: Its name; its kind if empty.
        hard: Whether the attempt scores 0 unless it passes: a golden assertion.
        weight: Its weight among those that are not hard, above 0.
        tolerance: Of ``number``: the largest difference, in units of the number.
        callable: Of ``callable``: ``package.module:name``, called with the output and ``value``;
            returns a score in ``[0, 1]``.
    """

    kind: Kind
    value: object = None
    name: str = ""
    hard: bool = False
    weight: float = 1.0
    tolerance: float = 1e-9
    callable: str | None = None

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem is not None:
            raise ValueError(f"a check '{self.kind}' {problem}")

    def _problem(self) -> str | None:
        """Return what is wrong with it; ``None`` if nothing is."""
        kinds: Mapping[str, type | tuple[type, ...]] = {
            "equals": str, "contains": str, "regex": str, "number": (int, float), "fields": dict,
            "tests": dict,
        }  # fmt: skip
        if self.kind in kinds and not isinstance(self.value, kinds[self.kind]):
            return f"needs another value than {self.value!r}"
        if not self.weight > 0.0:
            return f"needs a weight above 0, got {self.weight!r}"
        if self.kind == "callable" and not self.callable:
            return "needs `callable`"
        if self.kind == "tests" and not _cases(self.value):
            return "needs a function and cases"
        return None


def run_check(check: Check, output: str) -> CheckResult:
    """Return the result of a check on an output.

    Raises:
        CheckError: The check itself failed, as its own code raised.
    """
    try:
        score, note = RUN[check.kind](check, output)
    except CheckError:
        raise
    except Exception as error:
        raise CheckError(f"check {check.name or check.kind}: {error!r}") from error
    if not 0.0 <= score <= 1.0:
        text = f"a score must be in [0, 1], got {score!r}"
        raise CheckError(f"check {check.name or check.kind}: {text}")
    if check.hard:
        score = float(score >= 1.0)
    return CheckResult(check.name or check.kind, score, check.hard, check.weight, note)


def missing_result(check: Check, note: str) -> CheckResult:
    """Return the result of a check that was planned and did not run."""
    return CheckResult(check.name or check.kind, 0.0, check.hard, check.weight, note)


def _equals(check: Check, output: str) -> tuple[float, str]:
    return float(normalise(output) == normalise(str(check.value))), ""


def _contains(check: Check, output: str) -> tuple[float, str]:
    return float(f" {normalise(str(check.value))} " in f" {normalise(output)} "), ""


def _regex(check: Check, output: str) -> tuple[float, str]:
    return float(re.search(str(check.value), output) is not None), ""


def _number(check: Check, output: str) -> tuple[float, str]:
    numbers = NUMBER.findall(output)
    if not numbers or not isinstance(check.value, int | float):
        return 0.0, "no number"
    found = float(numbers[-1].replace(",", ""))
    return float(abs(found - check.value) <= check.tolerance), ""


def _fields(check: Check, output: str) -> tuple[float, str]:
    start, end = output.find("{"), output.rfind("}")
    try:
        data = json.loads(output[start : end + 1])
    except (ValueError, RecursionError):
        return 0.0, "no JSON object"
    expected = check.value if isinstance(check.value, dict) else {}
    right = [name for name, value in expected.items() if name in data and data[name] == value]
    extra = {*data} - {*expected}
    note = f"unknown fields: {', '.join(sorted(extra))}" if extra else ""
    return (0.0 if extra else len(right) / len(expected) if expected else 1.0), note


def _own(check: Check, output: str) -> tuple[float, str]:
    returned = load_callable(check.callable or "")(output, check.value)
    if isinstance(returned, bool):
        return float(returned), ""
    if not isinstance(returned, int | float):
        raise CheckError(f"check {check.callable}: a score must be a number, got {returned!r}")
    return float(returned), ""


def _cases(value: object) -> list[tuple[list[object], object]]:
    if not isinstance(value, dict) or not isinstance(value.get("function"), str):
        return []
    cases = value.get("cases")
    pairs = cases if isinstance(cases, list) else []
    sound = all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
    return [(list(pair[0]), pair[1]) for pair in pairs] if sound else []


HARNESS = """
import json, sys
task = json.load(sys.stdin)
out = sys.stdout
sys.stdout = sys.stderr
space = {"__name__": "solution"}
exec(compile(task["code"], "solution.py", "exec"), space)
function = space[task["function"]]
for arguments in task["arguments"]:
    try:
        result = {"result": function(*arguments)}
    except BaseException as error:
        result = {"error": type(error).__name__}
    try:
        line = json.dumps(result)
    except (TypeError, ValueError):
        line = json.dumps({"error": "no JSON"})
    print(line, file=out, flush=True)
"""
"""Calls a function of an output; it is not sent what its results should be."""


def _tests(check: Check, output: str) -> tuple[float, str]:
    """Call a function of the output in a process of its own, and compare its results here.

    Neither an exit code nor anything that the output prints, writes or edits is believed: the
    expected results never leave this process.
    """
    cases = _cases(check.value)
    blocks = CODE.findall(output)
    function = check.value["function"] if isinstance(check.value, dict) else ""
    task = {
        "code": blocks[-1] if blocks else output,
        "function": function,
        "arguments": [arguments for arguments, _ in cases],
    }
    with TemporaryDirectory() as folder:
        try:
            ended = subprocess.run(  # noqa: S603  # our own harness
                [sys.executable, "-I", "-c", HARNESS],
                input=json.dumps(task), capture_output=True, text=True, timeout=TESTS_S, cwd=folder,
                env={}, preexec_fn=_limit, errors="replace", check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return 0.0, f"took more than {TESTS_S:g} s"
    lines = ended.stdout[:MOST_OUTPUT].splitlines()
    if len(lines) != len(cases):
        why = (ended.stderr.strip().splitlines() or ["no result"])[-1]
        return 0.0, f"{len(lines)} of {len(cases)} results: {why[:200]}"
    right = sum(
        _result(line) == {"result": expected}
        for line, (_, expected) in zip(lines, cases, strict=True)
    )
    return right / len(cases), f"{right} of {len(cases)}"


def _result(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _limit() -> None:
    """Bound what a solution may use."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (int(TESTS_S) + 1, int(TESTS_S) + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_OUTPUT, MOST_OUTPUT))


RUN: Mapping[str, Callable[[Check, str], tuple[float, str]]] = {
    "equals": _equals,
    "contains": _contains,
    "regex": _regex,
    "number": _number,
    "fields": _fields,
    "tests": _tests,
    "callable": _own,
}
