"""The foundation: the data model, errors, settings, the gate, redaction, plugins."""
