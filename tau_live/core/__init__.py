"""The ground of the house: the data model, errors, settings, the gate, redaction, plugins."""
