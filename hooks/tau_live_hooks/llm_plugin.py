"""What our plugin tells llm: the models ``tau``, and the command ``llm tau-status``.

Nothing here may fail, or no command of llm would run; and nothing is imported before it is asked.
"""

import importlib
import sys
from typing import Any

from llm import hookimpl


@hookimpl
def register_models(register: Any) -> None:
    """Register ``tau``, always: who made it the default must not lose llm by switching us off."""
    try:
        llm_models = importlib.import_module("tau_live_hooks.llm_models")
        if llm_models.llm is not sys.modules["llm"]:  # it was imported anew
            importlib.reload(llm_models)
        register(llm_models.Tau(), llm_models.AsyncTau())
    except Exception as error:  # noqa: BLE001  # the border to the host
        _failed("llm_models_not_registered", error)


@hookimpl
def register_commands(cli: Any) -> None:
    """Register ``llm tau-status``."""
    try:
        from tau_live_hooks.llm_status import status

        cli.add_command(status)
    except Exception as error:  # noqa: BLE001  # the border to the host
        _failed("llm_commands_not_registered", error)


def _failed(event: str, error: Exception) -> None:
    from tau_live.errors import pass_on

    pass_on(error)
    from tau_live.process_switch import log_failure

    log_failure(event, error)
