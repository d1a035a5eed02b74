"""Settings that are refused."""

from pathlib import Path

import pytest

from tau_live.core.errors import SettingsError
from tau_live.core.settings import Settings


def error_of(environ: dict[str, str], directory: Path | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        Settings.from_env(environ, directory=directory)
    return str(caught.value)
