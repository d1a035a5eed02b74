"""Where relative paths of settings lead: decided once, because a host may go elsewhere."""

from dataclasses import replace
from pathlib import Path

from tau_live.errors import SettingsError, pass_on
from tau_live.settings import Settings


def here() -> Path | None:
    """Return the folder that the process runs in; ``None`` where somebody has removed it."""
    try:
        return Path.cwd()
    except OSError as error:
        pass_on(error)
        return None


def placed(settings: Settings) -> Settings:
    """Return the settings with paths that stay where they are when the process goes elsewhere.

    Raises:
        SettingsError: The store's path is relative, and the folder that it starts from is gone.
    """
    folder = here()
    if folder is None and not settings.store.is_absolute():
        raise SettingsError(
            f"TAU_LIVE_RL_STORE is the relative path '{settings.store}', and the current folder "
            "no longer exists: set an absolute path"
        )
    if folder is None:
        return settings

    def put(path: Path | None) -> Path | None:
        return None if path is None else folder / path

    return replace(
        settings,
        store=folder / settings.store,
        record=put(settings.record),
        kill_file=put(settings.kill_file),
        audit_key_file=put(settings.audit_key_file),
    )
