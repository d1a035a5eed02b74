"""Engines: work that is only computing, spread over processes or over machines."""
