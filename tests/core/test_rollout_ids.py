"""A rollout's id is the UUIDv5 that the documents name."""

import json
from uuid import uuid5

from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.records import NAMESPACE, rollout_id_of

ANY = st.text(st.characters(codec=None), max_size=40)


@given(ANY, ANY)
def test_the_id_of_a_rollout_is_the_uuid_of_its_host_and_run(host: str, run_id: str) -> None:
    name = json.dumps([host, run_id], ensure_ascii=True)

    assert rollout_id_of(host, run_id) == f"live-{uuid5(NAMESPACE, name)}"
