"""What pip is said to install works from where tau-live was installed."""

import importlib
import json
from pathlib import Path

import pytest

from tau_live.core.version import own_source, packages_for

FOUND = "Metadata-Version: 2.4\nName: tau-live\nVersion: 9.9\n"
NEEDS = "Requires-Dist: matplotlib>=3.9; extra == 'report'\nRequires-Dist: numpy>=2\n"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The record of an installed tau-live, which goes before the real one."""
    folder = tmp_path / "tau_live-9.9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(FOUND + NEEDS)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return folder


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (None, "tau-live"),
        ({"url": "file:///src/tau-live", "dir_info": {}}, "'tau-live @ file:///src/tau-live'"),
        (
            {"url": "https://x.org/t.git", "vcs_info": {"vcs": "git", "commit_id": "0a1b"}},
            "'tau-live @ git+https://x.org/t.git@0a1b'",
        ),
    ],
)
def test_it_is_installed_again_from_where_it_came(
    recorded: object, expected: str, installed: Path
) -> None:
    if recorded is not None:
        (installed / "direct_url.json").write_text(json.dumps(recorded))

    assert own_source() == expected


@pytest.mark.usefixtures("installed")
def test_of_an_extra_the_packages_are_named() -> None:
    assert packages_for("report") == "'matplotlib>=3.9'"
    assert packages_for("unknown") == "'tau-live[unknown]'"
