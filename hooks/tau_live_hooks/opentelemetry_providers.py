"""A processor of ours in every provider of one class; nothing here imports the host."""

import gc
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import wrapt

from tau_live.errors import pass_on, suppress

HELD = ("_active_span_processor", "_multi_log_record_processor")
"""Where a provider has what hands on to its processors."""

LISTED = ("_span_processors", "_log_record_processors")
"""Where that has them."""


class Providers:
    """The providers of a class, each with a processor of ours added once.

    Args:
        class_: The class of the host's providers.
        processor: What is added.
        add: The name of the method that adds one.
    """

    def __init__(self, class_: Any, processor: object, *, add: str) -> None:
        self._class = class_
        self._processor = processor
        self._add = add
        self._with_ours: WeakSet[Any] = WeakSet()
        self._original = class_.__init__
        self._ours = wrapt.FunctionWrapper(self._original, self._made)

    def watch(self) -> None:
        """Add ours to the providers there are, and to each that is made from now on."""
        self._class.__init__ = self._ours
        for provider in existing(self._class):
            self._take(provider)

    def unwatch(self) -> None:
        """Take ours out again, and let new providers be."""
        if self._class.__dict__.get("__init__") is self._ours:
            self._class.__init__ = self._original
        for provider in [*self._with_ours]:
            with suppress(Exception):
                _without(provider, self._processor)
        self._with_ours.clear()

    def _made(
        self, wrapped: Callable[..., Any], provider: Any, args: Any, kwargs: dict[str, Any]
    ) -> None:
        wrapped(*args, **kwargs)
        self._take(provider)

    def _take(self, provider: Any) -> None:
        try:
            if provider not in self._with_ours:
                getattr(provider, self._add)(self._processor)
                self._with_ours.add(provider)
        except Exception as error:  # noqa: BLE001  # a provider of the host's own kind goes without us
            pass_on(error)


def existing(class_: type) -> list[Any]:
    """Return the instances of a class and its subclasses that there are.

    No attribute of any of them is looked at: other people's objects may do anything then.
    """
    classes: list[type] = [class_]
    for one in classes:
        below: list[type] = type.__subclasses__(one)
        classes += [sub for sub in below if sub not in classes]
    return [one for one in gc.get_referrers(*classes) if issubclass(type(one), class_)]


def _without(provider: Any, processor: object) -> None:
    for held in HELD:
        fan_out = vars(provider).get(held)
        for name in LISTED:
            processors = getattr(fan_out, name, None)
            if isinstance(processors, tuple) and processor in processors:
                with fan_out._lock:  # noqa: SLF001  # there is no way to take one out
                    left = tuple(one for one in getattr(fan_out, name) if one is not processor)
                    setattr(fan_out, name, left)
