"""An agent on real input: questions about the standard library, and searches of different price."""
