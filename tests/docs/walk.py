"""Does what a page says, in order, in this interpreter and in the folder it is started in.

``python walk.py page.md``. Python blocks share one namespace; console blocks run in bash, and what
they export, and the folder they change to, stays for the blocks after them. What a block shows has
to be printed; where its fence says ``output``, nothing else may be; ``...`` is anything.
A block with ``file=name`` is written into the folder instead. The first block that fails ends it
all.
"""

import io
import os
import re
import signal
import subprocess
import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path

from tests.docs.blocks import Block, blocks, commands, printed

DEADLINE_S = 180
OURS = {"_", "SHLVL", "PWD", "OLDPWD"}
SCRIPT = """set -euo pipefail
trap 'code=$?; pwd > "$WALKED/pwd"; env -0 > "$WALKED/env"; exit $code' EXIT
"""


def walk(page: Path, beside: Path) -> None:
    """Do what a page says; notes of this walk are kept in ``beside``."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    said = ""
    for block in blocks(page.read_text()):
        where = f"{page.name}:{block.line}"
        if name := block.words.get("file"):
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(block.text)
        elif block.language == "text" and "output" in block.words:
            agree(where, block.text, said)
        elif block.runs and block.language == "python":
            said = run_python(block, where, namespace)
        elif block.runs:
            said = run_console(block, where, beside)


def run_python(block: Block, where: str, namespace: dict[str, object]) -> str:
    """Execute a block and return what it printed."""
    print(f"--- {where}", flush=True)
    heard = io.StringIO()
    padded = "\n" * block.line + block.text  # so that a traceback names the page's own line
    with redirect_stdout(heard):
        exec(compile(padded, where, "exec"), namespace)
    print(heard.getvalue(), flush=True)
    return heard.getvalue()


def run_console(block: Block, where: str, beside: Path) -> str:
    """Run a block's commands, check how they end, and return what they printed."""
    print(f"--- {where}", flush=True)
    heard = beside / "heard"
    with heard.open("wb") as out:
        shell = subprocess.Popen(
            ["bash", "-c", SCRIPT + "\n".join(commands(block.text))],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "WALKED": str(beside)},
            start_new_session=True,
        )
        try:
            code = shell.wait(DEADLINE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    text = heard.read_text(errors="replace")
    print(text, flush=True)
    expected = int(block.words.get("exit", "0"))
    if code != expected:
        raise SystemExit(f"{where}: expected exit code {expected}, got {code}")
    if "output" in block.words:
        agree(where, printed(block.text), text)
    else:
        holds(where, printed(block.text), text)
    take_over(beside)
    return text


def take_over(beside: Path) -> None:
    """Take over the environment and the folder that a console block left behind."""
    pairs = (pair.partition("=") for pair in (beside / "env").read_text().split("\0") if pair)
    left = {name: value for name, _, value in pairs if name not in OURS and name != "WALKED"}
    for name in os.environ.keys() - left.keys() - OURS:
        del os.environ[name]
    os.environ.update(left)
    os.chdir((beside / "pwd").read_text().rstrip("\n"))


def holds(where: str, expected: str, found: str) -> None:
    """See that each line that a page shows was printed, in order, whatever stands between them."""
    after = 0
    for line in expected.splitlines():
        place = found.find(line, after)
        if place < 0:
            raise SystemExit(f"{where}: expected\n{line}\nin\n{found}")
        after = place + len(line)


def agree(where: str, expected: str, found: str) -> None:
    """Compare what a page shows with what was printed; ``...`` stands for anything."""
    pattern = re.escape(expected.strip()).replace(re.escape("..."), ".*?")
    if not re.fullmatch(pattern, found.strip(), re.DOTALL):
        raise SystemExit(f"{where}: expected\n{expected}\nfound\n{found}")


if __name__ == "__main__":
    walk(Path(sys.argv[1]), Path(sys.argv[2]))
