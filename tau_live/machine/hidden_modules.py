"""Files beside an agent that hide modules of Python from it, and from us."""

import os
import sys

_NEEDED = frozenset({"msgspec", "numpy", "pluggy", "sqlite_utils", "structlog", "wrapt"})


def hiding_files() -> list[str]:
    """Say which files beside the agent hide modules of Python, or of what we need."""
    main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    beside = {os.path.realpath(f"{main}/.." if main else "."), os.path.realpath(".")}
    known = sys.stdlib_module_names | _NEEDED
    is_beside: dict[str, bool] = {}  # hundreds of modules are in a few folders
    found = []
    for name, module in sys.modules.copy().items():
        path = getattr(module, "__file__", None) if name in known else None
        if path:
            folder, _, file = path.rpartition(os.sep)
            folder = folder.rpartition(os.sep)[0] if file.startswith("__init__.") else folder
            if folder not in is_beside:
                is_beside[folder] = os.path.realpath(folder) in beside
            if is_beside[folder]:
                found.append(f"{path} hides the module {name!r}: rename it")
    return sorted(found)
