"""Files, processes, clocks and threads: what the machine gives, made dependable."""
