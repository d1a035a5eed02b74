"""The instrumentor that ``opentelemetry-instrument`` loads by its entry points."""

from tau_live.boot.boot import boot, detach_hosts


class Instrumentor:
    """Attaches where OpenTelemetry would instrument; sets no provider and imports none of it."""

    def instrument(self, **_: object) -> None:
        """Attach to every known host, as every other door does."""
        boot("opentelemetry")

    def uninstrument(self, **_: object) -> None:
        """Put every host back as it was."""
        detach_hosts()
