"""What people and programs are told of a store: a screen, a report, and the figures of both."""
