from collections.abc import Iterator
from contextlib import closing

import pytest

from tau_live.cli.demo.corpus import Entry, standard_library
from tau_live.cli.demo.questions import Question, Split, questions, split_entries
from tau_live.cli.demo.strategies import Library


@pytest.fixture(scope="session")
def entries() -> list[Entry]:
    return standard_library()


@pytest.fixture(scope="session")
def parts(entries: list[Entry]) -> Split:
    return split_entries(entries, seed=0)


@pytest.fixture(scope="session")
def whole(entries: list[Entry]) -> Iterator[Library]:
    """Everything, nothing hidden."""
    with closing(Library(entries)) as library:
        yield library


@pytest.fixture(scope="session")
def library(parts: Split) -> Iterator[Library]:
    with closing(Library(parts.indexed)) as library:
        yield library


@pytest.fixture(scope="session")
def training(parts: Split) -> list[Question]:
    return questions(parts.training, count=300, seed=0)


@pytest.fixture(scope="session")
def held_out(parts: Split) -> list[Question]:
    return questions(parts.held_out, count=200, seed=0)
