"""How often Python collects cyclic garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG = 50_000
_MIDDLE = 20
_OLD = 100


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Let Python collect rarely meanwhile, for work that holds much and makes hardly any cycles.

    It would scan all that is held again and again: an import of a log took a seventh longer.
    """
    before = gc.get_threshold()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
    try:
        yield
    finally:
        gc.set_threshold(*before)
