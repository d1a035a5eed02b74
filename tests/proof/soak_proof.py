"""A host runs agents as long as it likes: memory, handles, threads and file stay as they are."""

from collections.abc import Iterator

from tests.bench.living import KEPT, lived
from tests.proof.figures import Figure, Progress, Tier

EVENTS = {Tier.QUICK: 20_000, Tier.LONG: 1_000_000}
OPEN = {Tier.QUICK: 500, Tier.LONG: 5_000}
MB = 1e6


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Let runs come, learn and go, with a store that keeps a thousand of them."""
    opened = lived("open", OPEN[tier])
    progress(1, 3)
    queued = lived("queued", EVENTS[tier] // 4)
    progress(2, 3)
    soak = lived("soak", EVENTS[tier])
    progress(3, 3)
    after = f"after {soak['events']:,.0f} events"
    yield Figure(1, "bytes of memory for an open run", opened["bytes_each"], at_most=8_192)
    yield Figure(1, "bytes of memory for a waiting event", queued["bytes_each"], at_most=2_048)
    yield Figure(1, f"MB of memory more {after}", soak["rss_grown"] / MB, at_most=10.0)
    late = "in its second half"
    yield Figure(1, f"MB of memory more {late}", soak["rss_grown_late"] / MB, at_most=6.0)
    yield Figure(1, f"open files more {after}", soak["handles_grown"], at_most=4)
    yield Figure(1, f"threads more {after}", soak["threads_grown"], at_most=1)
    yield Figure(4, f"events dropped {after}", soak["dropped"], at_most=0)
    yield Figure(1, f"rollouts beyond the {KEPT:,} allowed", soak["beyond"], at_most=2 * KEPT)
