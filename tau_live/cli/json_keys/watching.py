"""The JSON keys of the commands that watch a store."""

from collections.abc import Mapping

from tau_live.cli.json_keys.rows import Keys

_TOLD: Keys = {
    "kind": "its name, such as gate-hold",
    "severity": "critical, warning or info",
    "subject": "what it concerns, such as a decision point; empty if everything",
    "sentence": "what happened, in words",
    "todo": "the command to run next",
    "facts**": "the numbers behind it",
    "at": "epoch seconds",
    "suppressed": "alerts of its kind suppressed since the last one raised",
}

WATCHING: Mapping[str, Keys] = {
    "alerts list": {
        **{f"alerts[].{key}": meaning for key, meaning in _TOLD.items()},
        "alerts[].owner": "the process that raised it",
        "alerts[].seq": "its place in the order of arrival",
        "suppressed.*": "alerts suppressed since the last one of their kind, by kind",
        "interval_s": "TAU_LIVE_RL_ALERT_INTERVAL_S",
        "command": "whether TAU_LIVE_RL_ALERT_COMMAND names a command",
    },
    "alerts test": {
        **{f"alert.{key}": meaning for key, meaning in _TOLD.items()},
        "alert.store": "the store's file",
        "alert.version": "version of the tau-live that raised it",
        "alert.test": "true: it is a test alert",
        "told[].plugin": "the recipient",
        "told[].problem": "why it failed; null if it did not",
        "command": "whether TAU_LIVE_RL_ALERT_COMMAND names a command",
    },
    "metrics": {
        "metrics[].name": "its stable name",
        "metrics[].type": "gauge or counter",
        "metrics[].help": "one sentence",
        "metrics[].values[].labels**": "its labels",
        "metrics[].values[].value": "the number; null where it is not finite",
        "output": "where the text was written; null for standard output",
    },
}
