"""Flags at the top level that stand for commands, and the report that they work.

``tau-live --prompt-optimization-config FILE`` is ``tau-live optimize --config FILE``. Earlier names
of these flags are deprecated: each gets one line on standard error.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from shlex import join
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple, TypedDict

import click

from tau_live.cli.options import epilog
from tau_live.core.errors import TauLiveError
from tau_live.core.files import write_whole
from tau_live.prompts.documents import DEPRECATED, Deprecation

FLAGS = "--prompt-optimization-"
CONTROL, PROXY = f"{FLAGS}control-", f"{FLAGS}proxy-"


class Flag(NamedTuple):
    """A flag at the top level, and the command that it stands for.

    Attributes:
        option: An option of the command, or the variable of a setting; empty for neither.
        command: The command that it is itself; empty for one that goes with another flag.
        has_value: Whether it takes a value.
    """

    option: str
    command: str = ""
    has_value: bool = True


NAMES: Mapping[str, Flag] = {
    "--model": Flag("--model"),
    f"{FLAGS}config": Flag("--config"),
    f"{FLAGS}store-sqlite": Flag("--store"),
    f"{FLAGS}json": Flag("--json", has_value=False),
    f"{CONTROL}status": Flag("", "optimize status", has_value=False),
    f"{CONTROL}pause": Flag("", "optimize pause", has_value=False),
    f"{CONTROL}resume": Flag("", "optimize resume", has_value=False),
    f"{CONTROL}cancel": Flag("", "optimize cancel", has_value=False),
    f"{CONTROL}rollback": Flag("--to", "optimize rollback"),
    f"{CONTROL}json": Flag("--json", has_value=False),
    f"{CONTROL}state-dir": Flag("--store"),
    f"{CONTROL}principal": Flag("TAU_LIVE_RL_PRINCIPAL"),
    f"{CONTROL}rbac-policy": Flag("TAU_LIVE_RL_ACCESS"),
    f"{PROXY}server": Flag("", "proxy", has_value=False),
    f"{PROXY}bind": Flag("--bind"),
    f"{PROXY}upstream-url": Flag("--upstream-url"),
    f"{PROXY}state-dir": Flag("--store"),
    f"{PROXY}timeout-ms": Flag("--timeout-ms"),
}

DEPRECATED_FLAGS: Mapping[str, str] = {
    "--train-config": f"{FLAGS}config",
    "--train-store-sqlite": f"{FLAGS}store-sqlite",
    "--train-json": f"{FLAGS}json",
    "--training-proxy-server": f"{PROXY}server",
    "--training-proxy-bind": f"{PROXY}bind",
    "--training-proxy-upstream-url": f"{PROXY}upstream-url",
    "--training-proxy-state-dir": f"{PROXY}state-dir",
    "--training-proxy-timeout-ms": f"{PROXY}timeout-ms",
}
"""Flags by their deprecated names, in the order in which they are reported."""

PASSED_ON = frozenset({"--reason", "--resume"})
"""Options with a value of the commands themselves, which may stand among the flags."""

STORE_IN_STATE = "training/store.sqlite"
TRUE = frozenset({"1", "true", "yes", "on"})


class Translation(NamedTuple):
    """Arguments at the top level in the words of commands.

    Attributes:
        arguments: What to parse in their place.
        environ: The settings among them.
        deprecations: The deprecated names among them.
    """

    arguments: Sequence[str]
    environ: Mapping[str, str]
    deprecations: Sequence[Deprecation]


def flags_of(environ: Mapping[str, str]) -> list[str]:
    """Return the flags that variables stand for; none unless they name a config or a command."""
    found: dict[str, str] = {}
    for name, flag in NAMES.items():
        value = environ.get(f"TAU_{name.removeprefix('--').upper().replace('-', '_')}", "").strip()
        if name.startswith(FLAGS) and value and (flag.has_value or value.lower() in TRUE):
            found[name] = f"{name}={value}" if flag.has_value else name
    is_command = any(NAMES[name].command or name == f"{FLAGS}config" for name in found)
    return [*found.values()] if is_command else []


def translate(arguments: Sequence[str]) -> Translation:
    """Return arguments with the flags before any command in the words of commands.

    Raises:
        click.UsageError: Two flags contradict each other, or one lacks its value.
    """
    given, rest = _flags(arguments)
    if not given:
        return Translation(arguments, {}, ())
    commands = {NAMES[name].command: typed for name, (typed, _) in given.items()}
    commands.pop("", None)
    if len(commands) > 1:
        first, second, *_ = commands.values()
        raise click.UsageError(f"'{first}' and '{second}' were both given")
    command = next(iter(commands), "optimize")
    options: list[str] = []
    environ: dict[str, str] = {}
    for name, (_, typed_value) in given.items():
        option = NAMES[name].option
        is_folder = name.endswith("-state-dir")
        value = str(Path(typed_value) / STORE_IN_STATE) if is_folder else typed_value
        if option.startswith("--"):
            options += [option, value] if NAMES[name].has_value else [option]
        elif option:
            environ[option] = value
    if command not in {"optimize", "optimize status", "proxy"} and "--reason" not in rest:
        options += ["--reason", f"none given: `{next(iter(commands.values()))}`"]
    typed = {typed for typed, _ in given.values()}
    verbose = [word for word in rest if word in {"-v", "--verbose"}]
    return Translation(
        [*verbose, *command.split(), *options, *(word for word in rest if word not in verbose)],
        environ,
        [Deprecation(old, new, "flag") for old, new in DEPRECATED_FLAGS.items() if old in typed],
    )


def _flags(arguments: Sequence[str]) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Return the flags by name, each as typed and with its value, and all other arguments."""
    given: dict[str, tuple[str, str]] = {}
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        typed, has_value, value = word.partition("=")
        name = DEPRECATED_FLAGS.get(typed, typed)
        if word == "--" or not word.startswith("-"):
            return given, [*rest, word, *words]
        if name not in NAMES:
            rest += [word, next(words, "")] if word in PASSED_ON else [word]
            continue
        if has_value and not NAMES[name].has_value:
            raise click.UsageError(f"Option '{typed}' does not take a value.")
        if NAMES[name].has_value and not has_value:
            value = next(words, "")
        if NAMES[name].has_value and not value:
            raise click.UsageError(f"Option '{typed}' requires an argument.")
        if given.setdefault(name, (typed, value))[0] != typed:
            old = next(old for old, new in DEPRECATED_FLAGS.items() if new == name)
            raise click.UsageError(f"'{old}' and '{name}' were both given")
        given[name] = (typed, value)
    return given, rest


class Command(TypedDict):
    """A command of the report, and its end."""

    name: str
    cmd: str
    status: Literal["passed", "failed"]
    expected_stderr: str
    stdout_excerpt: str


class Report(TypedDict):
    """The report on deprecated names."""

    schema_version: int
    generated_at: str
    repo_root: str
    commands: list[Command]
    summary: Mapping[str, int]


class _Case(NamedTuple):
    """A command of the report.

    Attributes:
        name: The name that it shows.
        arguments: Its arguments.
        stderr: What it has to print to standard error.
    """

    name: str
    arguments: Sequence[str]
    stderr: str = ""


CONFIG, OLD_CONFIG = "tasks.json", "earlier.json"
"""The fixture, and the same with the deprecated names of its keys."""

FIXTURE: Mapping[str, object] = {
    "optimize": [{"prompt": "What is 2 + 2?", "expected": "4"}],
    "validate": [{"prompt": "What is 3 + 3?", "expected": "6"}],
    "resources": {"system_prompt": "You are a concise assistant."},
    "model": "test/any",
}

VALUES: Mapping[str, str] = {
    f"{FLAGS}config": CONFIG,
    f"{FLAGS}store-sqlite": "runs/store.sqlite",
    f"{PROXY}bind": "127.0.0.1:8788",
    f"{PROXY}upstream-url": "http://127.0.0.1:9",
    f"{PROXY}state-dir": "state",
    f"{PROXY}timeout-ms": "30000",
}
EXCERPT = 600
REPORTS = Path("tasks/reports")
REPORT = "m22-compatibility-alias-validation"


def _cases() -> Iterator[_Case]:
    """Yield every name: old and new, and with ``=``."""
    for old, new in DEPRECATED_FLAGS.items():
        is_proxy = new.startswith(PROXY)
        needs = f"{PROXY}server" if is_proxy else f"{FLAGS}config={CONFIG}"
        beside = ["--dry-run"] if needs.startswith(new) else [needs, "--dry-run"]
        for name in (old, new):
            stderr = f"{Deprecation(old, new, 'flag').line}\n" if name == old else ""
            if new in VALUES:
                yield _Case(name, [name, VALUES[new], *beside], stderr)
                yield _Case(f"{name}=", [f"{name}={VALUES[new]}", *beside], stderr)
            else:
                yield _Case(name, [name, *beside], stderr)
    for old, new in DEPRECATED.items():
        yield _Case(new, [f"{FLAGS}config", CONFIG, "--dry-run"])
        lines = [f"{Deprecation(*names, 'key').line}\n" for names in DEPRECATED.items()]
        yield _Case(old, [f"{FLAGS}config", OLD_CONFIG, "--dry-run"], "".join(lines))


def _table(report: Report) -> str:
    """Return a report as Markdown."""
    rows = [
        f"| `{command['name']}` | `{command['cmd']}` | {command['status']} |"
        for command in report["commands"]
    ]
    found = report["summary"]
    return "\n".join(
        [
            "# Deprecated names",
            "",
            f"{found['passed']} of {found['total']} passed, {report['generated_at']}.",
            "",
            "| name | command | status |",
            "| --- | --- | --- |",
            *rows,
        ]
    )


def _run(case: _Case, folder: Path) -> Command:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TAU_")}
    done = subprocess.run(  # noqa: S603  # this very program
        [sys.executable, "-m", "tau_live.cli", *case.arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    passed = done.returncode == 0 and done.stderr == case.stderr
    return {
        "name": case.name,
        "cmd": join(["tau-live", *case.arguments]),
        "status": "passed" if passed else "failed",
        "expected_stderr": case.stderr,
        "stdout_excerpt": done.stdout[:EXCERPT],
    }


@click.command(epilog=epilog("optimize aliases", "tau-live optimize aliases"))
@click.option(
    "--output-json",
    metavar="PATH",
    default=REPORTS / f"{REPORT}.json",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the report goes as JSON.",
)
@click.option(
    "--output-md",
    metavar="PATH",
    default=REPORTS / f"{REPORT}.md",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where it goes as Markdown.",
)
def aliases(*, output_json: Path, output_md: Path) -> None:
    """Check that earlier names still work.

    Flags and keys of a config are tried by their earlier names and by those of today. The report is
    written as JSON and as Markdown.
    """
    with TemporaryDirectory(prefix="tau-live-aliases-") as name:
        folder = Path(name)
        earlier = {new: old for old, new in DEPRECATED.items()}
        renamed = {earlier.get(key, key): value for key, value in FIXTURE.items()}
        (folder / CONFIG).write_text(json.dumps(FIXTURE), encoding="utf-8")
        (folder / OLD_CONFIG).write_text(json.dumps(renamed), encoding="utf-8")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            commands = [*pool.map(lambda case: _run(case, folder), _cases())]
    passed = sum(command["status"] == "passed" for command in commands)
    summary = {"total": len(commands), "passed": passed, "failed": len(commands) - passed}
    report: Report = {
        "schema_version": 1,
        "generated_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "repo_root": ".",
        "commands": commands,
        "summary": summary,
    }
    for path, text in ((output_json, json.dumps(report, indent=2)), (output_md, _table(report))):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{text}\n".encode())
    click.echo(f"{passed} of {len(commands)} passed: {output_json}, {output_md}")
    if passed < len(commands):
        raise TauLiveError(f"{len(commands) - passed} of {len(commands)} names do not work")
