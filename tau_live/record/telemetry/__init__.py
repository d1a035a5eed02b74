"""Turns OpenTelemetry's spans of agents, live or from a log, into events of runs."""
