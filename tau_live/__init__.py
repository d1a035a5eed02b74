"""tau-live: lets an LLM agent you already run learn from its own decisions.

Importing this costs nothing: the door behind it opens on first use.
"""

TYPE_CHECKING = False  # type checkers know the name; importing it would cost a host 5 ms

if TYPE_CHECKING:
    from tau_live.choices import Choice
    from tau_live.door import (
        Run,
        attach,
        current,
        decide,
        detach,
        flush,
        reward,
        run,
        snapshot,
    )

__version__ = "0.1.0"
__all__ = [
    "Choice",
    "Run",
    "attach",
    "current",
    "decide",
    "detach",
    "flush",
    "reward",
    "run",
    "snapshot",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        from tau_live import door

        return getattr(door, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
