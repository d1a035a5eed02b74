"""The JSON keys of the commands that stop and start parts."""

from collections.abc import Mapping

from tau_live.cli.json_keys.rows import Keys

PAUSED = "what is paused: reason, who and at (epoch seconds), by part"
MISSING = (
    "while too many rewards are missing: since (epoch seconds, null if nobody noticed before), and "
    "how many are missing of the newest settled; else null"
)
HELD_IN_MEMORY = (
    "processes that hold although the store has no record of it: pid, reason, since (epoch seconds)"
)
KILLED = "the kill switch: reason, who and at (epoch seconds); null while it is off"

DOING: Mapping[str, Keys] = {
    "gate hold": {
        "state": "hold",
        "was": "the state before",
        "reason": "the code of the reason for holding",
        "detail": "why, in words",
        "who": "who holds it",
        "at": "epoch seconds",
        "revision": "grows with every change",
    },
    "pause": {"changed[]": "the parts that this command paused", "paused**": PAUSED},
    "resume": {"changed[]": "the parts that were paused", "paused**": PAUSED},
    "kill": {
        "changed": "whether the kill switch was off",
        "file": "the file that is the kill switch",
        "kill_switch**": KILLED,
        "audit": "why the store has no audit entry of it yet; null if it has one",
    },
    "unkill": {
        "changed": "whether the kill switch was on",
        "file": "the file that was the kill switch",
        "was**": KILLED,
        "audit": "why the store has no audit entry of it yet; null if it has one",
    },
}
