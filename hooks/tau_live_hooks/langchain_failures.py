"""Failures in a run of langchain: kept until it is known whether the host tries again."""

import time

from tau_live import events as ev
from tau_live_hooks.common_run import since
from tau_live_hooks.langchain_run import Held, Step, is_plain_failure


def failed(step: Step, error: BaseException) -> None:
    """Tell that a model or a tool failed, or keep it while the step around it goes on."""
    step.over = True
    held = Held(step, step.name, error, time.time(), since(step.began))
    if step.parent is None or not is_plain_failure(error):
        step.run.failed(held)
    else:
        step.parent.held.append(held)


def tried_again(parent: Step, kind: str, step: Step) -> None:
    """Tell the failures in a step that the host tries again now."""
    for held in [*parent.held]:
        same = held.step.kind == kind and held.step.call_id == step.call_id
        if same and (kind == "model" or held.name == step.name):
            parent.held.remove(held)
            step.run.failed(held, ev.Status.RETRY)
            step.run.book.retried(kind, reason=step.name)


def released(step: Step) -> None:
    """Tell the failures in a step that is over: nothing tries them again."""
    held, step.held = step.held, []
    for one in held:
        one.step.run.failed(one)
