"""An inbox that fills up: what it takes, what it cuts, and what it counts."""

from tau_live.core import events as ev
from tau_live.record.inbox import Inbox
from tests.record.inbox.conftest import Written, end, filled, finished, start, tool
from tests.streams import event


def test_no_run_is_begun_where_half_is_full_and_none_of_it_is_kept(
    stopped: Inbox, written: Written
) -> None:
    filled(stopped, 10)

    taken = [stopped.put(one) for one in (start("late"), tool(2, "late"), end("late"))]

    assert taken == [False, False, False]
    assert stopped.drops == {"queue_full": 3}
    assert {one.run_id for one in finished(stopped, written)} == {"first", "filler"}


def test_a_run_that_was_refused_stays_so_when_there_is_room_again(
    stopped: Inbox, written: Written
) -> None:
    filled(stopped, 10)
    stopped.put(start("late"))
    finished(stopped, written)

    taken = [stopped.put(one) for one in (tool(2, "late"), end("late"), start("next"))]

    assert taken == [False, False, True]


def test_a_run_that_is_left_out_because_of_a_pause_is_left_out_whole_and_counted_as_that(
    stopped: Inbox, written: Written
) -> None:
    left_out = stopped.leave_out(start("late"))

    taken = [stopped.put(one) for one in (tool(2, "late"), end("late"), start("late"))]

    assert (left_out, taken) == (False, [False, False, True])
    assert stopped.drops == {"paused": 3}
    assert [one.event for one in finished(stopped, written) if one.run_id == "late"] == [
        "run.start"
    ]


def test_the_next_execution_of_a_refused_run_is_taken(stopped: Inbox, written: Written) -> None:
    filled(stopped, 10)
    stopped.put(start("late"))
    finished(stopped, written)

    taken = [stopped.put(one) for one in (start("late"), tool(2, "late"), end("late"))]

    assert taken == [True, True, True]


def test_another_hosts_run_of_the_same_name_is_another(stopped: Inbox, written: Written) -> None:
    filled(stopped, 10)
    stopped.put(start("late"))
    finished(stopped, written)

    assert stopped.put(ev.ToolStart(host="other", run_id="late", at=1.0))


def test_a_run_under_way_goes_on_until_all_is_full(stopped: Inbox) -> None:
    stopped.put(start("mine"))
    filled(stopped, 15)

    taken = [stopped.put(tool(seq, "mine")) for seq in range(10)]

    assert taken == [True] * 5 + [False] * 5


def test_a_run_that_was_cut_still_ends_and_says_what_was_lost(
    stopped: Inbox, written: Written
) -> None:
    stopped.put(start("mine"))
    filled(stopped, 20)

    taken = [stopped.put(one) for one in (tool(1, "mine"), tool(2, "mine"), end("mine"))]

    assert taken == [False, False, True]
    assert stopped.drops == {"queue_full": 2}
    assert finished(stopped, written)[-1] == end("mine", dropped=2)


def test_a_run_that_was_cut_is_not_taken_up_again(stopped: Inbox, written: Written) -> None:
    stopped.put(start("mine"))
    filled(stopped, 20)
    stopped.put(tool(1, "mine"))
    finished(stopped, written)

    taken = [stopped.put(one) for one in (tool(2, "mine"), end("mine"))]

    assert taken == [False, True]
    assert finished(stopped, written)[-1] == end("mine", dropped=2)


def test_the_end_of_a_whole_run_is_taken_where_all_is_full(stopped: Inbox) -> None:
    stopped.put(start("mine"))
    filled(stopped, 20)

    assert stopped.put(end("mine"))


def test_rewards_are_the_last_to_be_dropped(stopped: Inbox) -> None:
    filled(stopped, 20)
    reward = event(ev.Reward, value=1.0)

    taken = [stopped.put(reward) for _ in range(25)]

    assert taken == [True] * 20 + [False] * 5
    assert stopped.depth == 40
    assert not stopped.put(end("filler"))


def test_a_reward_for_a_run_that_was_refused_is_taken(stopped: Inbox) -> None:
    filled(stopped, 10)
    stopped.put(start("late"))

    assert stopped.put(event(ev.Reward, "late", value=1.0))


def test_what_is_remembered_of_refused_runs_is_bounded(stopped: Inbox) -> None:
    filled(stopped, 10)

    for number in range(100):
        stopped.put(start(f"late-{number}"))

    assert len(stopped._cut) == 20
    assert stopped.drops == {"queue_full": 100}
