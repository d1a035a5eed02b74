"""The checks of `tau-live doctor`: one module per subject."""
