"""Events become rows: the queue, the writer's thread, the collector, housekeeping."""
