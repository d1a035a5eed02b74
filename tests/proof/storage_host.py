"""A host that obeys commands: ``python -m tests.proof.storage_host STORE``."""

import json
import logging
import os
import sys
import time
from pathlib import Path

import tau_live
from tau_live.core.settings import Learner, Settings

OPTIONS = ("a", "b", "c")


class LogLines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def run_agents(number: int, name: str) -> dict[str, object]:
    """Run some agents; return the exceptions that reached the host, and its answers."""
    raised = strange = 0
    sources: dict[str, int] = {}
    ids = []
    slowest = 0.0
    for at in range(number):
        began = time.thread_time()
        try:
            with tau_live.run("job", key=f"{name}-{at}") as run:
                choice = run.decide("model", OPTIONS, default="b")
                run.reward(float(at % 2))
                ids.append(run.id)
            strange += choice.option not in OPTIONS
            sources[choice.source] = sources.get(choice.source, 0) + 1
        except Exception:
            raised += 1
        slowest = max(slowest, time.thread_time() - began)
    return {"raised": raised, "strange": strange, "sources": sources, "ids": ids,
            "slowest_ms": slowest * 1e3}  # fmt: skip


def main() -> None:
    """Attach, and answer each line of standard input with a line of JSON."""
    log_lines = LogLines()
    log = logging.getLogger("tau_live")
    log.addHandler(log_lines)
    log.propagate = False
    os.environ["TAU_LIVE_RL"] = "1"
    given = sys.argv[1]
    gone = len(sys.argv) > 2 and sys.argv[2]
    if gone:  # remove the folder in which the process runs
        os.chdir(gone)
        Path(gone).rmdir()
    wanted = Settings(store=Path(given), decide_deadline_ms=60_000.0, update_interval=8,
                      learner=Learner.THREAD)  # fmt: skip
    tau_live.attach(None if given == "-" else wanted)
    print(json.dumps({"attached": tau_live.snapshot().get("enabled")}), flush=True)
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        answer: dict[str, object] = {}
        match command:
            case "work":
                number, name = argument.split()
                answer = run_agents(int(number), name)
            case "flush":
                answer = {"flushed": tau_live.flush(float(argument))}
            case "state":
                snapshot = tau_live.snapshot()
                answer = {name: snapshot.get(name) for name in ("gate", "store_trouble", "refused")}
                answer["log"] = log_lines.lines
            case "end":
                tau_live.detach()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
