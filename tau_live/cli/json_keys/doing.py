"""What the JSON of the commands holds that stop and start parts; ``keys`` tells how to read it."""

from collections.abc import Mapping

from tau_live.cli.json_keys.rows import Keys

PAUSED = "what rests: by part the reason, who and at (epoch seconds)"
MISSING = (
    "while too many rewards stay away: since (epoch seconds), and missing of how many settled when "
    "that was last counted; else null"
)
HELD_IN_MEMORY = (
    "processes that hold although the store does not say so: pid, reason, since (epoch seconds)"
)
KILLED = "the kill switch: reason, who and at (epoch seconds); null while it is off"

DOING: Mapping[str, Keys] = {
    "gate hold": {
        "state": "hold",
        "was": "the state before",
        "reason": "the code of the reason for holding",
        "detail": "why, in words",
        "who": "who wants it held",
        "at": "epoch seconds",
        "revision": "grows with every change",
    },
    "pause": {"changed[]": "the parts that were not paused yet", "paused**": PAUSED},
    "resume": {"changed[]": "the parts that were paused", "paused**": PAUSED},
    "kill": {
        "changed": "whether the kill switch was off",
        "file": "the file that is the kill switch",
        "kill_switch**": KILLED,
        "audit": "why the store has no audit line of it yet; null where it has",
    },
    "unkill": {
        "changed": "whether the kill switch was on",
        "file": "the file that was the kill switch",
        "was**": KILLED,
        "audit": "why the store has no audit line of it yet; null where it has",
    },
}
