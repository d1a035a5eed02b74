"""The documentation is built without a warning, and what is generated in it is up to date."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.conftest import ROOT

SEARCHED = ["gate-hold", "propens", "store_busi", "tau_live_rl_explor", "update_failur"]
"""What somebody looks for, as the search's stemmer writes it."""


@pytest.mark.slow
def test_what_is_generated_is_up_to_date(reader: dict[str, str]) -> None:
    pages = [
        *sorted((ROOT / "docs/reference").glob("*.md")),
        ROOT / "docs/architecture.md",
        ROOT / "docs/howto/cookbook.md",
        ROOT / "docs/howto/metrics.md",
        ROOT / "docs/reliability.md",
    ]
    files = [str(page.relative_to(ROOT)) for page in pages]

    done = subprocess.run(
        [sys.executable, "-m", "cogapp", "--check", "-I", ".", "-I", "hooks",
         "-p", "from tests.generated import *", *files],
        cwd=ROOT, env=reader, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 0, f"run `poe generate`\n{done.stdout}{done.stderr}"


@pytest.mark.slow
def test_it_is_built_without_a_warning(reader: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html",
         "-d", str(tmp_path / "trees"), str(ROOT / "docs"), str(tmp_path / "html")],
        env=reader, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert (tmp_path / "html/search.html").exists()
    index = (tmp_path / "html/searchindex.js").read_text()
    assert [word for word in SEARCHED if word not in index] == []
    for page in (tmp_path / "html").rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|link rel=\"stylesheet\")[^>]*", page.read_text())
        assert not [tag for tag in loaded if "http" in tag], page


def test_the_picture_loads_nothing() -> None:
    drawn = (ROOT / "docs/_static/demo.svg").read_text()

    assert "while&#160;it&#160;learned" in drawn
    assert not re.findall(r"url\(\s*['\"]?http|href=['\"]http|@import|@font-face", drawn)
