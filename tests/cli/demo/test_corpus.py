import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from tau_live.cli.demo.corpus import Entry, standard_library, words_of
from tau_live.core.errors import TauLiveError

pytestmark = pytest.mark.slow

FINGERPRINT = """
import hashlib, sys
from tau_live.cli.demo.corpus import standard_library
from tau_live.cli.demo.questions import questions, split_entries
from tau_live.cli.demo.strategies import Library, Strategy

parts = split_entries(standard_library(), seed=3)
library = Library(parts.indexed)
asked = questions(parts.training, count=40, seed=3) + questions(parts.held_out, count=40, seed=3)
seen = [
    (q.text, q.kind, sorted(q.answers), library.describe(q.text),
     [library.search(strategy, q.text) for strategy in Strategy])
    for q in asked
]
assert not {"antigravity", "this", "turtle", "tkinter", "numpy"} & set(sys.modules)
library.close()
print(hashlib.sha256(repr(seen).encode()).hexdigest())
"""


def fingerprint(*, hash_seed: str) -> str:
    """Return a digest of questions, features and hits, made by a fresh interpreter."""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FINGERPRINT],
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize(
    "name",
    [
        "asyncio.gather",
        "collections.Counter.most_common",
        "collections.deque.rotate",
        "functools.partial",
        "itertools.chain",
        "json.dumps",
        "json.JSONDecoder.raw_decode",
        "math.sqrt",
        "os.mkdir",
        "os.path.join",
        "pathlib.Path.glob",
        "shutil.copytree",
        "str.split",
        "time.sleep",
    ],
)
def test_what_everybody_knows_is_in_it(entries: list[Entry], name: str) -> None:
    names = {entry.name for entry in entries}

    assert name in names


def test_no_name_and_no_docstring_is_in_it_twice(entries: list[Entry]) -> None:
    names, texts = [e.name for e in entries], [e.text for e in entries]

    assert len(set(names)) == len(names) > 3000
    assert len(set(texts)) == len(texts)


def test_nothing_private_and_nothing_empty_is_in_it(entries: list[Entry]) -> None:
    private = [e.name for e in entries if any(part[0] == "_" for part in e.name.split("."))]
    empty = [e.name for e in entries if len(words_of(e.summary)) < 2 or not e.text]

    assert private == []
    assert empty == []


def test_how_a_c_function_is_called_is_not_taken_for_its_summary(entries: list[Entry]) -> None:
    summaries = {entry.name: entry.summary for entry in entries}

    assert summaries["time.sleep"].startswith("Delay execution for a given number of seconds.")


def test_reading_it_again_gives_the_same(entries: list[Entry]) -> None:
    assert standard_library() == entries


def test_a_python_without_its_sources_is_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TauLiveError, match="needs the sources of Python's standard library"):
        standard_library(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("json.JSONDecoder.raw_decode", ["json", "json", "decoder", "raw", "decode"]),
        ("pathlib.Path", ["pathlib", "path"]),
        ("Don't split UTF8 here!", ["don", "t", "split", "utf8", "here"]),
        ("assertRaisesRegex", ["assert", "raises", "regex"]),
        ("", []),
    ],
)
def test_names_fall_apart_into_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_the_same_seed_gives_the_same_questions_and_hits_whatever_the_hash_seed() -> None:
    prints = {fingerprint(hash_seed=seed) for seed in ("0", "4242")}

    assert len(prints) == 1
    assert len(prints.pop()) == hashlib.sha256().digest_size * 2
