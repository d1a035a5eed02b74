"""Every mistake that `tau-live doctor` finds, by its code; the reference page is made from this."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

OK, WARN, FAIL = "ok", "warn", "fail"


class Mistake(NamedTuple):
    """A mistake that somebody may make.

    Attributes:
        check: The subject of the check that finds it.
        state: ``warn`` or ``fail``.
        sign: The symptom, for the reference page.
        cure: The remedy, likewise.
        advice: The next step as `doctor` prints it, with placeholders for facts.
    """

    check: str
    state: str
    sign: str
    cure: str
    advice: str


class Check(NamedTuple):
    """The result of one check.

    Attributes:
        check: Its subject.
        state: ``ok``, ``warn`` or ``fail``.
        found: The finding.
        advice: The next step; ``None`` where there is none.
        mistake: The code of the mistake; ``None`` if there is none.
    """

    check: str
    state: str
    found: str
    advice: str | None = None
    mistake: str | None = None


def mistake(code: str, problem: str, **facts: object) -> Check:
    """Return the finding of a mistake: what is wrong here, and its advice with these facts."""
    known = MISTAKES[code]
    return Check(known.check, known.state, problem, known.advice.format(**facts), code)


MISTAKES: Mapping[str, Mistake] = MappingProxyType(
    {
        "packages-missing": Mistake(
            "packages", FAIL,
            "A required package is not installed.",
            "`pip install` it in the same environment; `doctor` prints the command.",
            "pip install {packages}",
        ),
        "sqlite-old": Mistake(
            "sqlite", FAIL,
            "The SQLite of this Python is too old.",
            "Use a Python with a newer SQLite.",
            "use a Python with at least {oldest}",
        ),
        "other-environment": Mistake(
            "environment", WARN,
            "This Python is not the one of the activated environment or of the project's "
            "`.venv`.",
            "Run the `tau-live` of the agent's environment; install it there.",
            "{folder}/bin/python -m pip install {source}; then {folder}/bin/tau-live doctor",
        ),
        "host-elsewhere": Mistake(
            "environment", WARN,
            "A source file in this folder imports a host that is not installed in this Python.",
            "Run the `tau-live` of the agent's environment; install it there.",
            "run the `tau-live` of the agent's Python; install it there",
        ),
        "installed-twice": Mistake(
            "packages", WARN,
            "Several versions of tau-live are installed on the path; the first is used.",
            "Uninstall it until none is left, then install it once.",
            "run `pip uninstall tau-live` until none is left, then install it once",
        ),
        "switch-off": Mistake(
            "switch", WARN,
            "`TAU_LIVE_RL` is not set in this shell.",
            "Set it to 1 where the agent runs.",
            "set TAU_LIVE_RL=1 where your agent runs; this shell does not need it",
        ),
        "switch-misspelt": Mistake(
            "switch", WARN,
            "`TAU_LIVE_RL` is neither true nor false, so it is off.",
            "Set it to 1, or unset it.",
            "set TAU_LIVE_RL=1 or unset it",
        ),
        "switch-late": Mistake(
            "switch", WARN,
            "A source file in this folder sets `TAU_LIVE_RL` after the import that needs it.",
            "Set it before Python starts, or above the import of the host.",
            "set it before Python starts, or above that import",
        ),
        "killed": Mistake(
            "kill switch", FAIL,
            "The kill switch is on: its file exists, or its variable is set.",
            "Find out why, then `tau-live unkill`, or unset `TAU_LIVE_RL_KILL`.",
            "{ended_by}",
        ),
        "kill-file-wrong": Mistake(
            "kill switch", FAIL,
            "`TAU_LIVE_RL_KILL_FILE` names something that is no kill file; its existence "
            "stops everything, and `unkill` leaves it as it is.",
            "Name a file that exists only while everything is to stop.",
            "correct TAU_LIVE_RL_KILL_FILE, where the agent runs too; it names something else",
        ),
        "paused": Mistake(
            "pauses", WARN,
            "An operator paused collection, learning or deciding.",
            "`tau-live resume PART` when the reason is gone.",
            '`tau-live resume {part} --reason "..."`',
        ),
        "access-broken": Mistake(
            "access", FAIL,
            "The access file cannot be read; no command may change anything.",
            "Fix the file, or set `TAU_LIVE_RL_ACCESS` to another.",
            "fix the file; until then everything is read-only",
        ),
        "setting-wrong": Mistake(
            "settings", FAIL,
            "A setting has an invalid value; nothing starts with it.",
            "Fix it.",
            "fix it; `tau-live config` lists all settings",
        ),
        "setting-doubtful": Mistake(
            "settings", WARN,
            "A setting is misspelt, deprecated, or has no effect.",
            "Fix it; `tau-live config` shows the settings in force and their sources.",
            "fix it; it has no effect now or will lose it soon",
        ),
        "act-off": Mistake(
            "decisions", WARN,
            "Decisions are declared, but adapters may not act on them.",
            "Once recorded runs look right, set `act = true` or `TAU_LIVE_RL_ACT=1`.",
            "once recorded runs look right, set act = true, or TAU_LIVE_RL_ACT=1",
        ),
        "nothing-declared": Mistake(
            "decisions", WARN,
            "Adapters may act, but no decision is declared.",
            "`tau-live init` proposes some; each host's page lists its decision points.",
            "`tau-live init` proposes some; options given in code need no declaration",
        ),
        "autostart-changed": Mistake(
            "autostart", WARN,
            "The line in site-packages differs from what this version writes.",
            "`tau-live autostart enable`, or `disable`.",
            "`tau-live autostart enable` rewrites it for this version, `disable` removes it",
        ),
        "alert-command-missing": Mistake(
            "alerts", WARN,
            "The alert command is missing or not executable.",
            "Fix `TAU_LIVE_RL_ALERT_COMMAND`, then run `tau-live alerts test`.",
            "fix TAU_LIVE_RL_ALERT_COMMAND, then run `tau-live alerts test`",
        ),
        "alert-urls-missing": Mistake(
            "alerts", WARN,
            "The file of Apprise URLs cannot be read, or apprise is not installed.",
            "Fix `TAU_LIVE_RL_ALERT_URLS` or install apprise, then run `tau-live alerts test`.",
            "fix TAU_LIVE_RL_ALERT_URLS or install apprise, then run `tau-live alerts test`",
        ),
        "plugin-broken": Mistake(
            "plugins", WARN,
            "A plugin cannot be imported, is invalid, or was disabled after failing.",
            "Fix it, or name it in `TAU_LIVE_RL_PLUGINS_OFF`.",
            "fix it, or name it in TAU_LIVE_RL_PLUGINS_OFF",
        ),
        "metadata-malformed": Mistake(
            "plugins", WARN,
            "The file `entry_points.txt` of a package cannot be read, so its plugins and adapters "
            "are left out.",
            "Install the package again, or correct its entry points.",
            "install the package again, or correct its entry points",
        ),
        "plugin-unknown": Mistake(
            "plugins", WARN,
            "`TAU_LIVE_RL_PLUGINS_OFF` names a plugin that is not installed.",
            "Fix its name; `tau-live doctor` lists the installed plugins.",
            "remove it from TAU_LIVE_RL_PLUGINS_OFF",
        ),
        "plugin-off": Mistake(
            "plugins", WARN,
            "An installed plugin is switched off.",
            "Remove it from `TAU_LIVE_RL_PLUGINS_OFF` to use it.",
            "remove it from TAU_LIVE_RL_PLUGINS_OFF to use it",
        ),
        "hosts-unlisted": Mistake(
            "hosts", FAIL,
            "The metadata of the package tau-live lists no host, so that nothing is attached "
            "to.",
            "Install tau-live again; include its metadata where it is copied or frozen.",
            "pip install --force-reinstall {source}",
        ),
        "spans-unseen": Mistake(
            "attached", WARN,
            "An attached process has agents that create OpenTelemetry spans, but no provider.",
            "Set a `TracerProvider` of `opentelemetry-sdk` at the start of the program.",
            "set a provider at the start of the program: pip install opentelemetry-sdk",
        ),
        "adapter-disabled": Mistake(
            "hosts", WARN,
            "An adapter does not fit its host's version, here or in an attached process.",
            "Install a supported version of the host; its runs are not recorded until then.",
            "its runs are not recorded; please report what is missing",
        ),
        "host-old": Mistake(
            "hosts", WARN,
            "A host is older than the oldest version that its adapter is tested with.",
            "Upgrade the host.",
            "pip install --upgrade {packages}",
        ),
        "store-unplaced": Mistake(
            "store", FAIL,
            "The store's path is relative, and the current folder no longer exists.",
            "Set `TAU_LIVE_RL_STORE` to an absolute path.",
            "set TAU_LIVE_RL_STORE to an absolute path",
        ),
        "store-missing": Mistake(
            "store", WARN,
            "There is no store yet.",
            "Run the agent with `TAU_LIVE_RL=1`, or `tau-live demo`.",
            "run your agent with TAU_LIVE_RL=1, or `tau-live demo`",
        ),
        "store-unwritable": Mistake(
            "store", FAIL,
            "The store cannot be created or written.",
            "Make the agent's user the owner of it and its folder.",
            "make this user its owner",
        ),
        "store-locked": Mistake(
            "schema", FAIL,
            "Another process locks the store.",
            "Stop that process; work resumes by itself.",
            "{advice}",
        ),
        "store-unusable": Mistake(
            "schema", FAIL,
            "The store was not written by this version.",
            "Use the tau-live version that wrote it, or another `TAU_LIVE_RL_STORE`.",
            "{advice}",
        ),
        "server-unfit": Mistake(
            "server", FAIL,
            "The server of the database is too old, or follows another one.",
            "Name a server of PostgreSQL 15 or newer that is written to.",
            "name a server of PostgreSQL 15 or newer that is written to",
        ),
        "server-doubtful": Mistake(
            "server", WARN,
            "The database is reached without encryption, by another clock, or has few connections "
            "left, or its server may lose what it has confirmed.",
            "`tau-live store check` says which of them, and what to do.",
            "{advice}",
        ),
        "rights-missing": Mistake(
            "rights", FAIL,
            "The login of the database may not do what an agent does.",
            "Let the owner of the database grant the role `tau_live_host` to it.",
            "let the owner of the database grant the role tau_live_host to it",
        ),
        "store-damaged": Mistake(
            "schema", FAIL,
            "Pages of the store are damaged, or the file is not a store.",
            "`tau-live set-aside` keeps it and starts an empty one.",
            "{advice}",
        ),
        "odd-row": Mistake(
            "rows", FAIL,
            "A row of the store holds what tau-live never writes: it was edited, or its page is "
            "damaged. It is not used.",
            "Correct it with `sqlite3`; `tau-live verify` shows what else was changed. A learner "
            "whose row of `trials` is odd is stopped: `tau-live policy exposure POINT 5%` starts "
            "it again.",
            "correct it with `sqlite3`; `tau-live verify` shows what else was changed",
        ),
        "store-schema-changed": Mistake(
            "schema", FAIL,
            "A table, trigger, view or index of the store is not as tau-live made it.",
            "Find out who did it; `tau-live verify` shows what else was changed. Drop what "
            "is foreign with `sqlite3`, or `tau-live set-aside` the store.",
            "find out who did it; `tau-live verify` shows what else was changed",
        ),
        "store-on-network": Mistake(
            "store", WARN,
            "The store is on a network file system, where SQLite's locks are unreliable.",
            "Set `TAU_LIVE_RL_STORE` to a file on a local disk.",
            "set TAU_LIVE_RL_STORE to a file on a local disk",
        ),
        "prompts-unread": Mistake(
            "prompts", WARN,
            "The store in `prompts-store` cannot be read, so agents use their own prompts.",
            "Point `TAU_LIVE_RL_PROMPTS_STORE` at the store that `tau-live optimize` writes, and "
            "let the agent's user read it.",
            "set TAU_LIVE_RL_PROMPTS_STORE to the store of `tau-live optimize`",
        ),
        "pool-other-model": Mistake(
            "prompts", WARN,
            "A shipped pool of lessons was learned with another model than the one that the "
            "decision declares, so it is offered to nobody.",
            'Set `model` in `[tool.tau-live.decisions.POINT]` to the model that the agent really '
            "uses; if that is another one, let it learn lessons of its own.",
            'set model = "{model}" in [tool.tau-live.decisions.{point}] if the agent uses it; else '
            "run `tau-live experience run` with its model",
        ),
        "pool-unsigned": Mistake(
            "prompts", WARN,
            "A shipped pool of lessons does not bear the stamp of this host's key, so nobody is "
            "offered it.",
            "Give the agent the key file that the run of lessons used "
            "(`TAU_LIVE_RL_AUDIT_KEY_FILE`); if it did, the pool was edited: find out by whom, and "
            "ship it anew.",
            "set TAU_LIVE_RL_AUDIT_KEY_FILE to the file of the run of lessons; if it is, run "
            "`tau-live experience verify`",
        ),
        "prompts-unused": Mistake(
            "prompts", WARN,
            "`prompts-store` is set, but no decision takes its prompts.",
            'Set `options-from = "resources"` in `[tool.tau-live.decisions.prompt]`.',
            'set options-from = "resources" in [tool.tau-live.decisions.prompt]',
        ),
        "spool-of-others": Mistake(
            "spool", FAIL,
            "The spool of this host belongs to another database or tenant, so nothing is recorded "
            "here and nothing is sent.",
            "Name another file with `TAU_LIVE_RL_SPOOL`, and send what is in this one to its own "
            "database; where that is gone, move the file away.",
            "{todo}",
        ),
        "stores-several": Mistake(
            "store", WARN,
            "Several stores are in one folder: perhaps you are looking at the wrong one.",
            "Set `TAU_LIVE_RL_STORE` to the same one everywhere, and move the others.",
            "set TAU_LIVE_RL_STORE to the same one everywhere, and move the others",
        ),
        "store-open": Mistake(
            "permissions", WARN,
            "Other users can read the store or write to its folder.",
            "Run the `chmod` command that `doctor` prints.",
            "chmod {mode} {path}",
        ),
        "disk-full": Mistake(
            "disk", WARN,
            "The disk is nearly full.",
            "Free disk space, or run `tau-live gc`.",
            "free disk space, or run `tau-live gc --older-than 30d`",
        ),
        "store-grows": Mistake(
            "retention", WARN,
            "The store is larger than 1 GB, and nothing is ever deleted.",
            "Set `TAU_LIVE_RL_RETENTION_DAYS`, `_ROLLOUTS` or `_MB`.",
            "set TAU_LIVE_RL_RETENTION_DAYS, or delete by hand: `tau-live gc --older-than 90d`",
        ),
        "retention-kept": Mistake(
            "retention", WARN,
            "The store is over its limits, and the excess may not be deleted.",
            "Let the learner catch up, or raise the limits.",
            "let the learner catch up (`tau-live learn --once`), or raise the limits",
        ),
        "gate-held": Mistake(
            "gate", FAIL,
            "The gate holds.",
            'Fix the cause, then `tau-live gate reset --reason "..."`.',
            'fix the cause, then `tau-live gate reset --reason "..."`',
        ),
        "plugin-disabled": Mistake(
            "plugins", FAIL,
            "An attached process disabled a plugin: it failed three times, or is invalid. If "
            "it redacts, no text is kept, and the host makes its own choices.",
            "Fix it, or name it in `TAU_LIVE_RL_PLUGINS_OFF`, and restart the process.",
            "fix it, or name it in TAU_LIVE_RL_PLUGINS_OFF, and restart that process",
        ),
        "held-in-memory": Mistake(
            "gate", FAIL,
            "An attached process cannot write to its store and holds; its host chooses by "
            "itself.",
            "See `store_fails` in its log: free disk space or grant access; it resumes by "
            "itself.",
            "see store_fails in its log; it resumes by itself once the store works",
        ),
        "process-silent": Mistake(
            "processes", FAIL,
            "An attached process is alive but writes nothing.",
            "See its log.",
            "see store_fails and store_busy in its log; it resumes by itself",
        ),
        "policy-missing": Mistake(
            "version", WARN,
            "The file of a serving version is missing or damaged.",
            "Restore it, or choose another version with `tau-live policy use`.",
            "an older version decides instead; restore the file, or `tau-live policy use`",
        ),
        "update-skipped": Mistake(
            "last update", WARN,
            "The last update learned nothing.",
            "See `tau-live updates`.",
            "see `tau-live updates {update}`",
        ),
        "nobody-learns": Mistake(
            "learner", WARN,
            "Rollouts wait to be learned from, but no learner is on or no process runs for "
            "long.",
            "`tau-live learn`, `TAU_LIVE_RL_LEARNER=thread`, or `tau_live.flush(timeout_s=60)`.",
            "call tau_live.flush(timeout_s=60) before the program ends, or run `tau-live learn`",
        ),
        "rewards-never-sent": Mistake(
            "rewards", WARN,
            "Runs end, but no reward is sent.",
            "`tau_live.reward(...)` or `tau-live reward`.",
            "call tau_live.reward(...) or `tau-live reward`: {without}",
        ),
        "rewards-missed": Mistake(
            "rewards", WARN,
            "Rewards do not arrive before their deadline.",
            "Raise the deadline that applies (`TAU_LIVE_RL_REWARD_DEADLINE_S`, or the "
            "reward's own `deadline-s`), send them sooner, or declare a default.",
            "raise {deadlines}, send rewards sooner, or declare a default",
        ),
        "rewards-refused": Mistake(
            "rewards", WARN,
            "Rewards were refused or do not count: not a number, no known run, a name that is not "
            "declared, or a source that may not give them.",
            "See the counters of `tau-live status --all`.",
            "see {counter} in docs/reference/counters.md",
        ),
        "rewards-out-of-range": Mistake(
            "rewards", WARN,
            "Rewards are outside the range that is declared for them.",
            "Fix their unit, or the range.",
            "fix the unit of the reward, or its range in the settings",
        ),
        "rewards-beyond": Mistake(
            "rewards", WARN,
            "Some rewards are far beyond the others and are clipped, large losses too, for no "
            "range is declared.",
            "Declare the range, `TAU_LIVE_RL_REWARD_RANGE`, or find their source.",
            "if they are real, declare the range (TAU_LIVE_RL_REWARD_RANGE); if not, find "
            "their source: `tau-live status --all`",
        ),
        "rewards-added-up": Mistake(
            "rewards", WARN,
            "Rewards of several names arrive and none is declared, so all are added up, and the "
            "first ends the wait: what arrives after the next update is missed.",
            "Declare those that count, with their weights, the one to wait for as primary.",
            "declare those that count, with their weights, the one to wait for as primary: "
            "docs/howto/rewards.md",
        ),
        "rewards-of-one": Mistake(
            "rewards", WARN,
            "One source gives nearly all rewards.",
            "Collect from more sources, or limit each with `TAU_LIVE_RL_SOURCE_CAPS`.",
            "collect from more sources, or limit each with TAU_LIVE_RL_SOURCE_CAPS",
        ),
        "one-option": Mistake(
            "options", WARN,
            "At a decision point only one option is ever offered.",
            "Offer at least two; check what `never`, `allowed` and the adapter exclude.",
            "offer at least two; check what `never`, `allowed` and the adapter exclude",
        ),
        "default-unoffered": Mistake(
            "options", WARN,
            "The `default` of a decision is not among its options, so no policy ever chooses "
            "it.",
            "Offer it under exactly the same name; `default_not_offered` in the log names it.",
            "offer it under exactly the same name",
        ),
        "option-untried": Mistake(
            "options", WARN,
            "An option was offered hundreds of times and never chosen.",
            "Raise `TAU_LIVE_RL_EXPLORATION`, or remove the option.",
            "raise TAU_LIVE_RL_EXPLORATION, or remove the option",
        ),
        "choices-refused": Mistake(
            "options", WARN,
            "The host rejects the chosen option, for example an unknown model.",
            "Declare only what it accepts; `tau-live show` names the option.",
            "declare only options that the host accepts; `tau-live show` names the option",
        ),
        "decisions-late": Mistake(
            "decisions", WARN,
            "Many decisions miss their deadline, so the default is served.",
            "Raise `TAU_LIVE_RL_DECIDE_DEADLINE_MS`, offer fewer options, or free the machine.",
            "raise TAU_LIVE_RL_DECIDE_DEADLINE_MS ({now_ms:g} now), offer fewer options, or "
            "free the machine",
        ),
        "runs-never-end": Mistake(
            "runs", WARN,
            "Runs start but none ends, so nothing is learned.",
            "Use `with tau_live.run(...)`, and let processes exit normally.",
            "use `with tau_live.run(...)`, and let processes exit normally",
        ),
        "keys-repeated": Mistake(
            "runs", WARN,
            "Runs have the keys of runs that have succeeded, so they are only further attempts.",
            "Give each run a `key` of its own, or none.",
            "give each run a `key` of its own, or none: nothing is learned from a repetition",
        ),
        "clock-ahead": Mistake(
            "clock", WARN,
            "Rows of the store are dated in the future: a clock was or is wrong.",
            "Fix the clocks of the machines that write; reward deadlines depend on them.",
            "fix the clocks of the machines that write; reward deadlines depend on them",
        ),
        "events-dropped": Mistake(
            "drops", WARN,
            "Events were dropped before they were stored.",
            "Raise `TAU_LIVE_RL_QUEUE_LIMIT`, or find out what slows the store down.",
            "see {counter} in docs/howto/runbook.md",
        ),
    }
)  # fmt: skip
"""The mistakes by code, in the order in which one would check for them."""
