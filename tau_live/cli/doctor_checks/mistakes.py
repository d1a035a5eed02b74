"""Every mistake that `tau-live doctor` finds, by its code; the reference page is made from this."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Mistake(NamedTuple):
    """A mistake that somebody may make.

    Attributes:
        sign: What is wrong.
        cure: How it is mended.
    """

    sign: str
    cure: str


MISTAKES: Mapping[str, Mistake] = MappingProxyType(
    {
        "packages-missing": Mistake(
            "A required package is not installed.",
            "`pip install` it in the same environment; `doctor` prints the command.",
        ),
        "sqlite-old": Mistake(
            "The SQLite of this Python is too old.", "Use a Python with a newer SQLite."
        ),
        "other-environment": Mistake(
            "This Python is not the one of the activated environment or of the project's `.venv`.",
            "Run the `tau-live` of the agent's environment; install it there.",
        ),
        "host-elsewhere": Mistake(
            "A source file in this folder imports a host that is not installed in this Python.",
            "Run the `tau-live` of the agent's environment; install it there.",
        ),
        "installed-twice": Mistake(
            "Several versions of tau-live are installed on the path; the first is used.",
            "Uninstall it until none is left, then install it once.",
        ),
        "switch-off": Mistake(
            "`TAU_LIVE_RL` is not set in this shell.", "Set it to 1 where the agent runs."
        ),
        "switch-misspelt": Mistake(
            "`TAU_LIVE_RL` is neither true nor false, so it is off.", "Set it to 1, or unset it."
        ),
        "switch-late": Mistake(
            "A source file in this folder sets `TAU_LIVE_RL` after the import that needs it.",
            "Set it before Python starts, or above the import of the host.",
        ),
        "killed": Mistake(
            "The kill switch is on: its file exists, or its variable is set.",
            "Find out why, then `tau-live unkill`, or unset `TAU_LIVE_RL_KILL`.",
        ),
        "kill-file-wrong": Mistake(
            "`TAU_LIVE_RL_KILL_FILE` names something that is no kill file; its existence stops "
            "everything, and `unkill` leaves it as it is.",
            "Name a file that exists only while everything is to stop.",
        ),
        "paused": Mistake(
            "An operator paused collection, learning or deciding.",
            "`tau-live resume PART` when the reason is gone.",
        ),
        "access-broken": Mistake(
            "The access file cannot be read; no command may change anything.",
            "Fix the file, or set `TAU_LIVE_RL_ACCESS` to another.",
        ),
        "setting-wrong": Mistake(
            "A setting has an invalid value; nothing starts with it.", "Fix it."
        ),
        "setting-doubtful": Mistake(
            "A setting is misspelt, deprecated, or has no effect.",
            "Fix it; `tau-live config` shows the settings in force and their sources.",
        ),
        "act-off": Mistake(
            "Decisions are declared, but adapters may not act on them.",
            "Once recorded runs look right, set `act = true` or `TAU_LIVE_RL_ACT=1`.",
        ),
        "nothing-declared": Mistake(
            "Adapters may act, but no decision is declared.",
            "`tau-live init` proposes some; each host's page lists its decision points.",
        ),
        "autostart-changed": Mistake(
            "The line in site-packages differs from what this version writes.",
            "`tau-live autostart enable`, or `disable`.",
        ),
        "alert-command-missing": Mistake(
            "The alert command is missing or not executable.",
            "Fix `TAU_LIVE_RL_ALERT_COMMAND`, then run `tau-live alerts test`.",
        ),
        "plugin-broken": Mistake(
            "A plugin cannot be imported, is invalid, or was disabled after failing.",
            "Fix it, or name it in `TAU_LIVE_RL_PLUGINS_OFF`.",
        ),
        "plugin-unknown": Mistake(
            "`TAU_LIVE_RL_PLUGINS_OFF` names a plugin that is not installed.",
            "Fix its name; `tau-live doctor` lists the installed plugins.",
        ),
        "plugin-off": Mistake(
            "An installed plugin is switched off.",
            "Remove it from `TAU_LIVE_RL_PLUGINS_OFF` to use it.",
        ),
        "spans-unseen": Mistake(
            "An attached process has agents that create OpenTelemetry spans, but no provider.",
            "Set a `TracerProvider` of `opentelemetry-sdk` at the start of the program.",
        ),
        "adapter-disabled": Mistake(
            "An adapter does not fit its host's version, here or in an attached process.",
            "Install a supported version of the host; its runs are not recorded until then.",
        ),
        "host-old": Mistake(
            "A host is older than the oldest version that its adapter is tested with.",
            "Upgrade the host.",
        ),
        "store-unplaced": Mistake(
            "The store's path is relative, and the current folder no longer exists.",
            "Set `TAU_LIVE_RL_STORE` to an absolute path.",
        ),
        "store-missing": Mistake(
            "There is no store yet.", "Run the agent with `TAU_LIVE_RL=1`, or `tau-live demo`."
        ),
        "store-unwritable": Mistake(
            "The store cannot be created or written.",
            "Make the agent's user the owner of it and its folder."
        ),
        "store-locked": Mistake(
            "Another process locks the store.", "Stop that process; work resumes by itself."
        ),
        "store-unusable": Mistake(
            "The store was not written by this version.",
            "Use the tau-live version that wrote it, or another `TAU_LIVE_RL_STORE`.",
        ),
        "store-damaged": Mistake(
            "Pages of the store are damaged, or the file is not a store.",
            "`tau-live set-aside` keeps it and starts an empty one."
        ),
        "store-schema-changed": Mistake(
            "A table, trigger, view or index of the store is not as tau-live made it.",
            "Find out who did it; `tau-live verify` shows what else was changed."
            " Drop what is foreign with `sqlite3`, or `tau-live set-aside` the store.",
        ),
        "store-on-network": Mistake(
            "The store is on a network file system, where SQLite's locks are unreliable.",
            "Set `TAU_LIVE_RL_STORE` to a file on a local disk.",
        ),
        "stores-several": Mistake(
            "Several stores are in one folder: perhaps you are looking at the wrong one.",
            "Set `TAU_LIVE_RL_STORE` to the same one everywhere, and move the others.",
        ),
        "store-open": Mistake(
            "Other users can read the store or write to its folder.",
            "Run the `chmod` command that `doctor` prints."
        ),
        "disk-full": Mistake("The disk is nearly full.", "Free disk space, or run `tau-live gc`."),
        "store-grows": Mistake(
            "The store is larger than 1 GB, and nothing is ever deleted.",
            "Set `TAU_LIVE_RL_RETENTION_DAYS`, `_ROLLOUTS` or `_MB`.",
        ),
        "retention-kept": Mistake(
            "The store is over its limits, and the excess may not be deleted.",
            "Let the learner catch up, or raise the limits.",
        ),
        "gate-held": Mistake(
            "The gate holds.", 'Fix the cause, then `tau-live gate reset --reason "..."`.'
        ),
        "plugin-disabled": Mistake(
            "An attached process disabled a plugin: it failed three times, or is invalid. If it "
            "redacts, no text is kept, and the host makes its own choices.",
            "Fix it, or name it in `TAU_LIVE_RL_PLUGINS_OFF`, and restart the process.",
        ),
        "held-in-memory": Mistake(
            "An attached process cannot write to its store and holds; its host chooses by itself.",
            "See `store_fails` in its log: free disk space or grant access; it resumes by itself.",
        ),
        "process-silent": Mistake(
            "An attached process is alive but writes nothing.", "See its log."
        ),
        "policy-missing": Mistake(
            "The file of a serving version is missing or damaged.",
            "Restore it, or choose another version with `tau-live policy use`.",
        ),
        "update-skipped": Mistake(
            "The last update learned nothing.", "See `tau-live updates`."
        ),
        "nobody-learns": Mistake(
            "Rollouts wait to be learned from, but no learner is on or no process runs for long.",
            "`tau-live learn`, `TAU_LIVE_RL_LEARNER=thread`, or `tau_live.flush(timeout_s=60)`.",
        ),
        "rewards-never-sent": Mistake(
            "Runs end, but no reward is sent.", "`tau_live.reward(...)` or `tau-live reward`."
        ),
        "rewards-missed": Mistake(
            "Rewards do not arrive before their deadline.",
            "Raise the deadline that applies (`TAU_LIVE_RL_REWARD_DEADLINE_S`, or the reward's own "
            "`deadline-s`), send them sooner, or declare a default.",
        ),
        "rewards-refused": Mistake(
            "Rewards were refused: not a number, no known run, or a source that may not give them.",
            "See the counters of `tau-live status --all`.",
        ),
        "rewards-out-of-range": Mistake(
            "Rewards are outside the range that is declared for them.",
            "Fix their unit, or the range.",
        ),
        "rewards-beyond": Mistake(
            "Some rewards are far beyond the others, and no range is declared.",
            "Declare the range, `TAU_LIVE_RL_REWARD_RANGE`, or find their source.",
        ),
        "rewards-added-up": Mistake(
            "Rewards of several names arrive and none is declared, so all are added up.",
            "Declare those that count, with their weights.",
        ),
        "rewards-of-one": Mistake(
            "One source gives nearly all rewards.",
            "Collect from more sources, or limit each with `TAU_LIVE_RL_SOURCE_CAPS`.",
        ),
        "one-option": Mistake(
            "At a decision point only one option is ever offered.",
            "Offer at least two; check what `never`, `allowed` and the adapter exclude.",
        ),
        "default-unoffered": Mistake(
            "The `default` of a decision is not among its options, so no policy ever chooses it.",
            "Offer it under exactly the same name; `default_not_offered` in the log names it."
        ),
        "option-untried": Mistake(
            "An option was offered hundreds of times and never chosen.",
            "Raise `TAU_LIVE_RL_EXPLORATION`, or remove the option.",
        ),
        "choices-refused": Mistake(
            "The host rejects the chosen option, for example an unknown model.",
            "Declare only what it accepts; `tau-live show` names the option.",
        ),
        "decisions-late": Mistake(
            "Many decisions miss their deadline, so the default is served.",
            "Raise `TAU_LIVE_RL_DECIDE_DEADLINE_MS`, offer fewer options, or free the machine.",
        ),
        "runs-never-end": Mistake(
            "Runs start but none ends, so nothing is learned.",
            "Use `with tau_live.run(...)`, and let processes exit normally.",
        ),
        "keys-repeated": Mistake(
            "Runs have the keys of runs that have succeeded, so they are only further attempts.",
            "Give each run a `key` of its own, or none.",
        ),
        "clock-ahead": Mistake(
            "Rows of the store are dated in the future: a clock was or is wrong.",
            "Fix the clocks of the machines that write; reward deadlines depend on them.",
        ),
        "events-dropped": Mistake(
            "Events were dropped before they were stored.",
            "Raise `TAU_LIVE_RL_QUEUE_LIMIT`, or find out what slows the store down.",
        ),
    }
)  # fmt: skip
"""By code, in the order in which one would look."""
