"""Turns events into rows: inbox, writer, collector; telemetry spans; rewards."""
