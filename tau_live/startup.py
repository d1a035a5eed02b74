"""The call that ``tau-live autostart enable`` adds to the start of the interpreter."""


def start() -> None:
    """Attach to every known host as it is imported; does nothing while tau-live is off."""
    from tau_live.core.switch import is_on

    if is_on():  # a .start file calls this in any environment
        from tau_live.boot.boot import boot

        boot("autostart")
