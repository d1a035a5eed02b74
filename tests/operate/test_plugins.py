"""The command that alerts are given to: what it gets, and that it can neither hang nor hurt."""

import json
import os
import select
import shlex
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tau_live.core.errors import SettingsError
from tau_live.core.hookspecs import Alert
from tau_live.core.settings import Settings
from tau_live.operate.alert_plugins import (
    MOST_CHARS,
    URLS,
    AlertCommand,
    Call,
    calls_of,
    commands_of,
    json_of,
    run_command,
)

ALERT = Alert(
    kind="gate-hold", severity="critical", sentence="It holds; $(touch evil) `touch evil`.",
    todo="tau-live gate", facts={"reason": "operator"}, at=5.0, store="/s.sqlite", version="1",
)  # fmt: skip
ENVIRON = {"PATH": os.environ["PATH"], "TAU_LIVE_RL": "1"}


def call(words: Sequence[str], alert: Alert = ALERT) -> Call:
    return Call(words, json_of(alert))


def told(script: str, alert: Alert = ALERT, *, timeout_s: float = 30.0) -> str | None:
    return run_command(call(["sh", "-c", script], alert), alert, ENVIRON, timeout_s=timeout_s)


def test_a_command_gets_the_alert_as_variables_and_as_json(tmp_path: Path) -> None:
    got = shlex.quote(str(tmp_path / "got"))

    ran = told(f'echo "$TAU_LIVE_ALERT_KIND $TAU_LIVE_ALERT_SEVERITY" > {got}; cat >> {got}')

    first, second = (tmp_path / "got").read_text().splitlines()
    assert ran is None
    assert first == "gate-hold critical"
    assert json.loads(second)["facts"] == {"reason": "operator"}


def test_no_shell_sees_what_an_alert_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    ran = run_command(call(["cat"]), ALERT, ENVIRON, timeout_s=30.0)

    assert ran is None
    assert list(tmp_path.iterdir()) == []


def test_tau_live_is_off_in_a_command() -> None:
    assert told('test "$TAU_LIVE_RL" = 0') is None


def test_a_command_that_takes_too_long_is_killed_with_all_it_started(tmp_path: Path) -> None:
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)

    ran = told(f"sleep 60 > {shlex.quote(str(fifo))} & echo on > /dev/null; wait", timeout_s=0.3)

    gone, _, _ = select.select([reader], [], [], 10.0)
    assert gone  # whoever might write to it
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert ran == "took longer than 0.3 s and was killed"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["sh", "-c", "exit 3"], "ended with exit code 3"),
        (["/nowhere/at/all"], "cannot be started"),
        (["sh", "-c", "exec 0<&-; exit 0"], None),
    ],
    ids=["fails", "is not there", "reads nothing"],
)
def test_what_a_command_fails_of_is_said(words: list[str], problem: str | None) -> None:
    ran = run_command(call(words), ALERT, ENVIRON, timeout_s=30.0)

    assert (ran or "").startswith(problem or "")
    assert (ran is None) == (problem is None)


def test_facts_that_are_too_many_for_a_pipe_are_left_out(tmp_path: Path) -> None:
    long = Alert(
        kind="x", severity="info", sentence="x", todo="x", at=1.0, store="", version="1",
        facts={"long": "y" * MOST_CHARS},
    )  # fmt: skip
    got = tmp_path / "got"

    ran = told(f"cat > {shlex.quote(str(got))}", long)

    assert ran is None
    assert json.loads(got.read_text())["facts"] == {}


def test_a_failure_is_counted_once_and_nothing_is_tried_again(tmp_path: Path) -> None:
    counted: list[str] = []
    script = f"echo x >> {shlex.quote(str(tmp_path / 'tries'))}; exit 1"
    command = AlertCommand(
        lambda alert: call(["sh", "-c", script], alert),
        environ=ENVIRON,
        timeout_s=30.0,
        count=counted.append,
    )

    command.alert_raised(ALERT)

    assert counted == ["alert_commands_failed"]
    assert (tmp_path / "tries").read_text() == "x\n"


def test_without_a_setting_there_is_no_command() -> None:
    assert commands_of(Settings(), {}, lambda _: None) == {}


class Receiver(BaseHTTPRequestHandler):
    """A webhook of a chat."""

    got: ClassVar[list[dict[str, str]]] = []
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.got.append(json.loads(body))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def webhook() -> Iterator[str]:
    Receiver.got.clear()
    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"json://127.0.0.1:{server.server_port}/agents"
        server.shutdown()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("status", [200, 500])
def test_apprise_sends_an_alert_to_the_urls_of_a_file(
    webhook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    pytest.importorskip("apprise")
    urls, counted = tmp_path / "urls.txt", list[str]()
    urls.write_text(f"{webhook}\n")
    monkeypatch.setattr(Receiver, "status", status)
    commands = commands_of(Settings(alert_urls=urls), os.environ, counted.append)

    commands[URLS].alert_raised(ALERT)

    [sent] = Receiver.got
    assert sent["title"] == "tau-live: gate-hold"
    assert sent["type"] == "failure"
    assert sent["message"].splitlines()[0] == ALERT.sentence
    assert "Next: tau-live gate" in sent["message"]
    assert counted == ([] if status == 200 else ["alert_commands_failed"])


def test_no_secret_of_a_url_is_in_an_argument(tmp_path: Path) -> None:
    urls = tmp_path / "urls.txt"
    urls.write_text("slack://a-secret/of/mine\n")

    made = calls_of(Settings(alert_urls=urls))[URLS](ALERT)

    assert not any("a-secret" in word for word in made.words)


@pytest.mark.slow
@pytest.mark.parametrize("url", ["nosuch://user:a-secret@host/a-secret", "slack://a-secret"])
def test_no_secret_of_a_url_is_printed(tmp_path: Path, url: str) -> None:
    pytest.importorskip("apprise")
    urls, printed = tmp_path / "urls.txt", tmp_path / "printed.txt"
    urls.write_text(f"{url}\n")
    call = calls_of(Settings(alert_urls=urls))[URLS](ALERT)

    with printed.open("w") as out:
        problem = run_command(call, ALERT, os.environ, timeout_s=30.0, out=out.fileno())

    assert problem is not None
    assert printed.read_text()
    assert "a-secret" not in printed.read_text()


def test_a_url_in_place_of_its_file_is_refused_and_not_shown() -> None:
    with pytest.raises(SettingsError) as refused:
        Settings.from_env({"TAU_LIVE_RL_ALERT_URLS": "json://user:a-secret@host/path"})

    assert "must be a file that has the URLs, got a URL" in str(refused.value)
    assert "a-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ('curl -d @- "https://x/a b"', ("curl", "-d", "@-", "https://x/a b")),
        ('["page", "a b", "$HOME"]', ("page", "a b", "$HOME")),
        ("none", ()),
        ("", ()),
    ],
)
def test_a_command_is_read_from_the_environment_without_a_shell(
    given: str, words: tuple[str, ...]
) -> None:
    found = Settings.from_env({"TAU_LIVE_RL_ALERT_COMMAND": given})

    assert found.settings.alert_command == words
