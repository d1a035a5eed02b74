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
            "A package that tau-live needs is not installed.",
            "`pip install` it in the same environment; `doctor` names the command.",
        ),
        "sqlite-old": Mistake(
            "The SQLite of this Python is too old.", "Use a Python that has a newer one."
        ),
        "other-environment": Mistake(
            "This Python is not the one of the activated environment or of the project's `.venv`.",
            "Run the `tau-live` of the environment in which the agent runs; install it there.",
        ),
        "host-elsewhere": Mistake(
            "A source in this folder imports a host that this Python does not have.",
            "Run the `tau-live` of the environment in which the agent runs; install it there.",
        ),
        "installed-twice": Mistake(
            "Several versions of tau-live are installed on one path; the first is used.",
            "Uninstall it until it is gone, and install it once.",
        ),
        "switch-off": Mistake(
            "`TAU_LIVE_RL` is not set in this shell.", "Set it to 1 where the agent runs."
        ),
        "switch-misspelt": Mistake(
            "`TAU_LIVE_RL` is neither true nor false, which is off.", "Set it to 1, or unset it."
        ),
        "switch-late": Mistake(
            "A source in this folder sets `TAU_LIVE_RL` after the import that had needed it.",
            "Set it before Python starts, or above the import of the host.",
        ),
        "killed": Mistake(
            "The kill switch is on: its file is there, or its variable is set.",
            "Find out why, then `tau-live unkill`, or unset `TAU_LIVE_RL_KILL`.",
        ),
        "paused": Mistake(
            "Somebody has paused collecting, learning or deciding.",
            "`tau-live resume PART` when its reason is over.",
        ),
        "access-broken": Mistake(
            "The file that says who may do what cannot be read; nobody may change anything.",
            "Mend the file, or name another by `TAU_LIVE_RL_ACCESS`.",
        ),
        "setting-wrong": Mistake(
            "A setting has a value that it cannot have; nothing starts with it.", "Correct it."
        ),
        "setting-doubtful": Mistake(
            "A setting is misspelt, deprecated, or has no effect.",
            "Correct it; `tau-live config` shows what is in force and from where.",
        ),
        "act-off": Mistake(
            "Decisions are declared, and adapters may not act on them.",
            "Once recorded runs look right, set `act = true` or `TAU_LIVE_RL_ACT=1`.",
        ),
        "nothing-declared": Mistake(
            "Adapters may act, and no decision is declared.",
            "`tau-live init` proposes some; each host's page says what there is.",
        ),
        "autostart-changed": Mistake(
            "The line in site-packages is not what this version writes.",
            "`tau-live autostart enable`, or `disable`.",
        ),
        "alert-command-missing": Mistake(
            "The command that alerts are given to is not there, or may not be run.",
            "Correct `TAU_LIVE_RL_ALERT_COMMAND`, and see it work with `tau-live alerts test`.",
        ),
        "plugin-broken": Mistake(
            "A plugin cannot be imported, is wrong, or was disabled after failing.",
            "Mend it, or name it in `TAU_LIVE_RL_PLUGINS_OFF`.",
        ),
        "plugin-unknown": Mistake(
            "`TAU_LIVE_RL_PLUGINS_OFF` names a plugin that is not installed.",
            "Correct its name; `tau-live doctor` lists those there are.",
        ),
        "plugin-off": Mistake(
            "An installed plugin is switched off.",
            "Take it out of `TAU_LIVE_RL_PLUGINS_OFF` if it is meant to work.",
        ),
        "spans-unseen": Mistake(
            "An attached process has agents that make spans of OpenTelemetry, and no provider.",
            "Set a `TracerProvider` of `opentelemetry-sdk` where the program starts.",
        ),
        "adapter-disabled": Mistake(
            "The adapter of a host does not fit it, here or in an attached process.",
            "Install a version of the host that is supported; its runs are not seen until then.",
        ),
        "host-old": Mistake(
            "A host is older than the oldest version that its adapter is tested with.",
            "Upgrade the host.",
        ),
        "store-unplaced": Mistake(
            "The store's path is relative, and the folder of the process is gone.",
            "Set `TAU_LIVE_RL_STORE` to an absolute path.",
        ),
        "store-missing": Mistake(
            "There is no store yet.", "Run the agent with `TAU_LIVE_RL=1`, or `tau-live demo`."
        ),
        "store-unwritable": Mistake(
            "The store cannot be made or written.", "Let the agent's user own it and its folder."
        ),
        "store-locked": Mistake(
            "Another process keeps the store locked.", "End what does; it goes on by itself."
        ),
        "store-unusable": Mistake(
            "The store is no store of this version.",
            "Use the tau-live that wrote it, or another `TAU_LIVE_RL_STORE`.",
        ),
        "store-damaged": Mistake(
            "Pages of the store are damaged, or the file is no store at all.",
            "`tau-live set-aside` keeps it and begins another."
        ),
        "store-on-network": Mistake(
            "The store is on a network file system, where SQLite's locks cannot be relied on.",
            "Set `TAU_LIVE_RL_STORE` to a file on a local disk.",
        ),
        "stores-several": Mistake(
            "Several stores lie in one folder: perhaps one is written and another looked at.",
            "Name one everywhere, with `TAU_LIVE_RL_STORE`; move the others.",
        ),
        "store-open": Mistake(
            "Others can read the store, or write to its folder.", "`chmod` it as `doctor` says."
        ),
        "disk-full": Mistake("The disk is nearly full.", "Make room, or `tau-live gc`."),
        "store-grows": Mistake(
            "The store is larger than 1 GB, and nothing is ever forgotten.",
            "Set `TAU_LIVE_RL_RETENTION_DAYS` or one of its siblings.",
        ),
        "retention-kept": Mistake(
            "The store is beyond its limits, and what is beyond may not be forgotten.",
            "Let it be learned from, or allow more.",
        ),
        "gate-held": Mistake(
            "The gate holds.", 'Mend the cause, then `tau-live gate reset --reason "..."`.'
        ),
        "plugin-disabled": Mistake(
            "An attached process does not call a plugin any more: it failed three times, or is "
            "wrong. Where it redacts, no text is kept, and the host decides by itself.",
            "Fix it, or name it in `TAU_LIVE_RL_PLUGINS_OFF`, and start the process again.",
        ),
        "held-in-memory": Mistake(
            "An attached process holds because it cannot write its store; its host decides alone.",
            "Its log says why (`store_fails`): make room or give access; it goes on by itself.",
        ),
        "process-silent": Mistake(
            "An attached process lives and writes nothing.", "Its log says why."
        ),
        "policy-missing": Mistake(
            "The file of a version that serves is missing or damaged.",
            "Put it back, or choose another with `tau-live policy use`.",
        ),
        "update-skipped": Mistake(
            "The last update learned nothing.", "`tau-live updates` says why."
        ),
        "nobody-learns": Mistake(
            "Rollouts wait to be learned from, and no learner is switched on, or no process lasts.",
            "`tau-live learn`, `TAU_LIVE_RL_LEARNER=thread`, or `tau_live.flush()` at the end.",
        ),
        "rewards-never-sent": Mistake(
            "Runs end and nobody sends a reward.", "`tau_live.reward(...)` or `tau-live reward`."
        ),
        "rewards-missed": Mistake(
            "Rewards do not come before their deadline.",
            "Raise `TAU_LIVE_RL_REWARD_DEADLINE_S`, send them sooner, or declare a default.",
        ),
        "rewards-refused": Mistake(
            "Rewards were refused: no number, no known run, or a source that may not give them.",
            "Look at `tau-live status --all`; the counter says which.",
        ),
        "rewards-out-of-range": Mistake(
            "Rewards are outside the range that is declared for them.",
            "Correct their unit, or the range.",
        ),
        "rewards-beyond": Mistake(
            "Some rewards are far beyond the others, and no range says that they may be.",
            "Declare the range, `TAU_LIVE_RL_REWARD_RANGE`, or see whose they are.",
        ),
        "rewards-of-one": Mistake(
            "One person gives nearly all rewards.",
            "Ask others too, or limit each with `TAU_LIVE_RL_SOURCE_CAPS`.",
        ),
        "one-option": Mistake(
            "At a decision point only one option is ever offered.",
            "Offer at least two; look at what `never`, `allowed` and the adapter leave out.",
        ),
        "default-unoffered": Mistake(
            "The `default` of a decision is not among its options, so no policy ever chooses it.",
            "Offer it among them, under the very same name; the log's `default_not_offered` says "
            "which it was.",
        ),
        "option-untried": Mistake(
            "An option was offered hundreds of times and never chosen.",
            "Raise `TAU_LIVE_RL_EXPLORATION`, or take it out.",
        ),
        "choices-refused": Mistake(
            "The host does not take what is chosen, for example a model that it does not know.",
            "Declare what it can take; `tau-live show` says which option it was.",
        ),
        "decisions-late": Mistake(
            "Many decisions take longer than their deadline, so that the default is served.",
            "Raise `TAU_LIVE_RL_DECIDE_DEADLINE_MS`, offer fewer options, or free the machine.",
        ),
        "runs-never-end": Mistake(
            "Runs begin and none ends, so that none is learned from.",
            "Use `with tau_live.run(...)`; end processes so that they may finish.",
        ),
        "clock-ahead": Mistake(
            "Rows of the store are from the future: a clock was or is wrong.",
            "Set the clocks of the machines that write; rewards wait by them.",
        ),
        "events-dropped": Mistake(
            "Events were dropped on the way to the store.",
            "Raise `TAU_LIVE_RL_QUEUE_LIMIT`, or see what keeps the store from writing.",
        ),
    }
)  # fmt: skip
"""By code, in the order in which one would look."""
