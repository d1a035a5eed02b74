"""Events become rows: inbox, writer, collector; spans of telemetry; rewards and their join."""
