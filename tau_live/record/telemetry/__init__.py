"""OpenTelemetry's spans of agents as the events of runs, whether they come live or from a log."""
