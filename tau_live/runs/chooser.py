"""Who chooses at a decision point: the arm of a run, and what that arm has chosen."""

from collections.abc import Mapping

from tau_live.deciding.arms import CONTROL, NEITHER, Arm
from tau_live.deciding.decider import Decided, Decider, Served
from tau_live.gate import Kind
from tau_live.guard import Guard
from tau_live.handed.offers import Offer
from tau_live.hookspecs import DecisionRequest
from tau_live.pauses import PAUSED
from tau_live.plugins import Plugins
from tau_live.runs.handles import RunHandle


class Chooser:
    """Asks who is to choose: a plugin, the learner's policy, or the champion.

    Args:
        decider: What decides with policies.
        plugins: Who may answer before it.
        guard: What is told of errors.
        control_share: The share of rollouts that is kept back for the control.
    """

    def __init__(
        self, decider: Decider, plugins: Plugins, guard: Guard, *, control_share: float
    ) -> None:
        self._decider = decider
        self._plugins = plugins
        self._guard = guard
        self._control_share = control_share

    def arm(self, handle: RunHandle, point: str, *, start: float | None, has_control: bool) -> Arm:
        """Return the arm of a run at a point, which it keeps; one that may not decide is out."""
        if self._decider.paused or self._plugins.keeps_no_text:
            return NEITHER
        if self._decider.is_stopped(point):
            return Arm(CONTROL, 0.0)
        arm = handle.arms.get(point)
        if arm is None:
            arm = self._decider.arm(
                point,
                handle.rollout_id,
                start=start,
                has_control=has_control,
                control_share=self._control_share,
            )
            arm = handle.arms.setdefault(point, arm)  # threads may share a run
        return arm

    def chosen(
        self,
        arm: Arm,
        handle: RunHandle,
        id_: str,
        *,
        point: str,
        offer: Offer,
        context: Mapping[str, object],
    ) -> tuple[Decided | None, str | None]:
        """Return what the arm chose, or the learner would have, and why that is not applied."""
        if self._decider.paused:
            return None, PAUSED
        if self._plugins.keeps_no_text:  # what is stored of it teaches nothing
            return None, "redactor_disabled"
        champion = self._decider.champion(point) if arm.name == CONTROL else None
        if champion is None and self._decider.is_stopped(point):
            return None, "stopped"
        try:
            decided = self._asked(
                handle,
                id_,
                point=point,
                offer=offer,
                context=context,
                by=champion,
                plugins=arm.name != CONTROL,
            )
        except Exception as error:  # noqa: BLE001  # counted by the gate; the row says why
            self._guard.failed(Kind.DECISION, error)
            return None, f"error: {type(error).__name__}"
        return decided, CONTROL if arm.name == CONTROL and champion is None else None

    def _asked(  # noqa: PLR0913  # passed on from there
        self,
        handle: RunHandle,
        id_: str,
        *,
        point: str,
        offer: Offer,
        context: Mapping[str, object],
        by: Served | None,
        plugins: bool,
    ) -> Decided:
        """Return what the first plugin that answers chose, else what our policy chose.

        Plugins take part in the learner's arm alone: the control stays what it was.
        """
        decided = self._decider.choose(
            id_,
            point=point,
            options=list(zip(offer.names, offer.features, strict=True)),
            context=context,
            default=offer.default,
            allowed=offer.allowed,
            explored=offer.explored,
            by=by,
        )
        if not plugins or not self._plugins.listens("decide"):
            return decided
        answer = self._plugins.decide(
            DecisionRequest(
                run_id=handle.run_id,
                rollout_id=handle.rollout_id,
                point=point,
                options=offer.choosable(),
                context={**context},
                default=offer.choosable_default(),
            )
        )
        if answer is None:
            return decided
        return decided.answered(offer.names.index(answer.option), answer.probability)
