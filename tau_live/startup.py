"""What ``tau-live autostart enable`` lets the interpreter call when it starts."""


def start() -> None:
    """Attach to every known host as it is imported; does nothing while tau-live is off."""
    from tau_live.process_switch import is_on

    if is_on():  # a .start file calls this whatever the environment says
        from tau_live.attaching.booting import boot

        boot("autostart")
