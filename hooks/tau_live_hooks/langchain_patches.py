"""How names of the host are given something of ours, and given back."""

from typing import Any

from tau_live.adapters import Detach


def replaced(owner: Any, ours: dict[str, Any]) -> Detach:
    """Put what is ours in the place of what the host has; whoever wraps it after us keeps that."""
    kept = {name: vars(owner)[name] for name in ours}
    for name, one in ours.items():
        setattr(owner, name, one)

    def undo() -> None:
        for name, one in ours.items():
            if vars(owner).get(name) is one:
                setattr(owner, name, kept[name])

    return undo
