"""The options of a decision as plain data, read anew only where they are others."""

from tau_live.core import events as ev
from tau_live.core.offers import Mask, read_options
from tau_live.core.sanitize import Limits
from tau_live.decisions.choice import Offer, decision_event, offer_of
from tau_live.decisions.decider import Arm
from tau_live.decisions.runs import RunEvents


def offered(events: RunEvents, options: dict[str, object]) -> Offer:
    offer = offer_of(read_options(options), None, mask=Mask(), read=events.features)
    assert offer is not None
    return offer


def decision(events: RunEvents, offer: Offer, context: object = None) -> ev.Decision:
    handle = events.handle("run", key="k", session=None, parent=None, epoch=0, recorded=True)
    return decision_event(
        handle,
        1,
        events.stamp(),
        point="p",
        offer=offer,
        context=events.context(context),
        policy_choice=None,
        applied=0,
        why_not="stopped",
        latency_us=1.0,
        arm=Arm("learner", 1.0),
    )


def test_features_that_stay_are_kept_once_and_never_the_hosts_own() -> None:
    events = RunEvents(stream="s", limits=Limits())
    features: dict[str, object] = {"cost": 1.5, "kind": "small", "open": True, "note": None}

    first, second = (offered(events, {"a": features}).features[0] for _ in range(2))

    assert first == features
    assert first is second
    assert first is not features


def test_features_changed_in_place_are_read_anew() -> None:
    events = RunEvents(stream="s", limits=Limits())
    features: dict[str, object] = {"cost": 1.5, "kind": "small"}
    offered(events, {"a": features})

    features["kind"] = "large"

    assert offered(events, {"a": features}).features == ({"cost": 1.5, "kind": "large"},)


def test_what_is_handed_on_may_be_changed_without_harm() -> None:
    events = RunEvents(stream="s", limits=Limits())
    features: dict[str, object] = {"cost": 1.5}
    offer = offered(events, {"a": features})

    for taken in (decision(events, offer).features["a"], offer.choosable()["a"]):
        assert isinstance(taken, dict)
        taken["cost"] = 99.0

    assert offered(events, {"a": features}).features == ({"cost": 1.5},)


def test_what_the_host_changes_after_a_decision_is_not_in_its_event() -> None:
    events = RunEvents(stream="s", limits=Limits())
    features: dict[str, object] = {"cost": 1.5}
    context: dict[str, object] = {"words": 3.0}
    offer, known = offered(events, {"a": features}), events.context(context)

    features["cost"], context["words"] = 99.0, 99.0

    found = decision(events, offer, known)
    assert (found.features, found.context) == ({"a": {"cost": 1.5}}, {"words": 3.0})


def test_features_that_had_to_be_cut_are_cut_every_time() -> None:
    events = RunEvents(stream="s", limits=Limits(items=3, key_chars=50))
    features: dict[str, object] = {f"{n}": 1.5 for n in range(9)}
    longer: dict[str, object] = {"x" * 60: 1.5, "bad": float("nan")}

    first, second = (offered(events, {"a": features, "b": longer}).features for _ in range(2))

    assert first == second
    assert first[0] is not None
    assert len(first[0]) == 3
    assert first[1] is not None
    assert first[1]["bad"] == "NaN"


def test_objects_inside_features_are_read_every_time() -> None:
    events = RunEvents(stream="s", limits=Limits())
    inside = [1.5]
    features: dict[str, object] = {"list": inside}
    offered(events, {"a": features})

    inside.append(2.5)

    assert offered(events, {"a": features}).features == ({"list": [1.5, 2.5]},)
