"""The engine of a command whose work may take minutes: ``--engine`` and ``--workers``."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tau_live.core.errors import TauLiveError
from tau_live.core.version import packages_for
from tau_live.engines.local import LEAST_S, Gradual, Processes, Tier
from tau_live.rl.engine import Engine, InProcess

if TYPE_CHECKING:
    from tau_live.engines.ray import Ray

ADDRESS = "RAY_ADDRESS"
LOCAL, RAY = "local", "ray"

LEAST_RAY_S = 60.0
"""Seconds of work for which Ray is started, which takes up to a third of that."""

Command = TypeVar("Command", bound=Callable[..., Any])


def engine_options(command: Command) -> Command:
    """Add the options ``--engine`` and ``--workers`` to a command."""
    command = click.option(
        "--workers", type=click.IntRange(1),
        help="How much is computed at once; the result is the same.  [default: one per processor]",
    )(command)  # fmt: skip
    return click.option(
        "--engine", type=click.Choice([LOCAL, RAY]), default=LOCAL, show_default=True,
        help="What computes: processes of this machine, or Ray (an extra), for a minute or more.",
    )(command)  # fmt: skip


@contextmanager
def engine_of(name: str, workers: int | None) -> Iterator[Engine]:
    """Return the engine of that name, which starts no more than the work is worth.

    Args:
        name: ``local`` or ``ray``.
        workers: How much is computed at once; ``None`` is as much as there are processors.

    Raises:
        TauLiveError: Ray is not installed.
    """
    count = workers or _processors()
    tiers = [Tier(LEAST_S, Processes(count) if count > 1 else InProcess())]
    if name == LOCAL:
        yield Gradual(tiers)
        return
    ray = _ray(workers)
    with closing(ray), redirect_stdout(sys.stderr):  # results are printed after the work
        yield Gradual([*tiers, Tier(LEAST_RAY_S, ray)])
    if not ray.is_started:
        click.echo("tau-live: Ray was not started: the work took less than a minute", err=True)


def _ray(workers: int | None) -> "Ray":
    try:
        from tau_live.engines.ray import Ray  # the one module that needs it
    except ImportError as error:
        raise TauLiveError(
            f"--engine ray needs Ray, 357 MB with what it needs ({error}): "
            f"pip install {packages_for('ray')}"
        ) from error
    address = os.environ.get(ADDRESS)
    cost = (
        f"joining Ray at {address}"
        if address
        else ("starting Ray, which takes 10 to 20 s, and 690 MB of memory with two workers")
    )
    return Ray(workers, address=address, tell=lambda: click.echo(f"tau-live: {cost}", err=True))


def _processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
