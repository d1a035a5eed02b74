"""The conformance kit of adapters, played on their real hosts: for our tests, and for others'.

A *play* runs one scenario on the host and returns everything that its user would see, as text.
``faults`` plays it without us, then with the adapter attached under each condition, and returns
what was different, and what is missing in the store. ``golden_faults`` compares the recording of a
play with one that is kept::

    @pytest.mark.parametrize("scenario", Scenario)
    def test_the_adapter_conforms(scenario: Scenario, tmp_path: Path) -> None:
        if scenario in CANNOT:  # the scenarios that this host cannot play, and why
            pytest.skip(CANNOT[scenario])
        assert faults(ADAPTER, play, scenario, folder=tmp_path) == []
"""

from tau_live.testing.conditions import Condition, faults, full_disk_faults
from tau_live.testing.expected import Play, Recorded, Scenario, missing_in, recorded_in
from tau_live.testing.golden import (
    golden_faults,
    golden_version,
    host_version,
    replay_faults,
    write_golden,
)

__all__ = [
    "Condition",
    "Play",
    "Recorded",
    "Scenario",
    "faults",
    "full_disk_faults",
    "golden_faults",
    "golden_version",
    "host_version",
    "missing_in",
    "recorded_in",
    "replay_faults",
    "write_golden",
]
