"""What an operator lets rest."""

from collections.abc import Callable

from tau_live.core.reasons import Part, Pause
from tau_live.store.roles import Store

OpenStore = Callable[[], Store]

PAUSE = Pause(part=Part.LEARNING, reason="odd", who="me@here", at=5.0)


def test_nothing_rests_where_nobody_said_so(store: Store) -> None:
    assert store.pauses.pauses() == {}


def test_a_pause_comes_back_as_it_was_stored(opened: OpenStore) -> None:
    begun = opened().pauses.begin(PAUSE)

    assert begun
    assert opened().pauses.pauses() == {Part.LEARNING: PAUSE}


def test_the_first_pause_of_a_part_stays(store: Store) -> None:
    store.pauses.begin(PAUSE)

    again = store.pauses.begin(Pause(part=Part.LEARNING, reason="other", who="you", at=6.0))

    assert not again
    assert store.pauses.pauses() == {Part.LEARNING: PAUSE}


def test_a_part_goes_on_once_and_the_others_rest(store: Store) -> None:
    deciding = Pause(part=Part.DECIDING, reason="odd", who="me@here", at=5.0)
    for pause in (PAUSE, deciding):
        store.pauses.begin(pause)

    ended = [store.pauses.end(Part.LEARNING), store.pauses.end(Part.LEARNING)]

    assert ended == [True, False]
    assert store.pauses.pauses() == {Part.DECIDING: deciding}
