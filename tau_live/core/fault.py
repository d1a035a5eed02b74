"""Named points at which tests and drills can make a process die or a step fail.

A point costs one call that finds nothing to do. No setting and no environment variable can make
one do anything: only code in the same process can, such as that of tests in their children, and
that of `tau-live bench drill` in its own, which train on a scripted host in stores of their own.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

POINTS: Mapping[str, str] = MappingProxyType(
    {
        "store.made": "a new file is there under another name, not yet under its own",
        "store.linked": "a new file is there under its own name, and still under the other",
        "store.prepared": "a file has its journal, and maybe no schema yet",
        "store.begin": "the write lock is taken, nothing is written",
        "store.commit": "all of a transaction is written, it is not committed",
        "store.committed": "a transaction is committed, its caller has not been notified",
        "writer.taken": "a batch has left the queue, it is not recorded",
        "writer.prepared": "a batch is recorded and was shown to plugins, it is not stored",
        "writer.stored": "a batch is stored, but still counts as waiting",
        "writer.closing": "all that came is stored, what is open is not ended",
        "recording.append": "a recording's next lines are made, they are not written",
        "recording.appended": "lines are in a recording, their events are not in the store",
        "file.made": "a file is there beside its name, all or some of its content is not",
        "file.written": "a file is whole and on the disk, but not under its name",
        "file.renamed": "a file is under its name, the folder may not be on the disk",
        "update.leased": "the lease is taken, nothing is read",
        "update.read": "rollouts and the policy to start from are read, nothing is learned",
        "update.trained": "a new policy is in memory alone",
        "update.meant": "the name of the checkpoint is noted, the file is not there",
        "update.saved": "the checkpoint is whole and in its place, the store does not know it",
        "update.stored": "the update, its version and its watermark are committed",
        "update.pruned": "unneeded checkpoints are gone, the lease is still held",
        "update.serves": "the update decides in this process, its report is not published",
        "update.published": "the report is published, plugins are not notified",
        "learner.swept": "a file that an update left behind is gone, the next one is not",
        "policies.added": "an update is written in a transaction, its version is not",
        "policies.deleted": "one of several unneeded checkpoints is gone",
        "promotion.seen": "evidence is counted in memory alone",
        "promotion.saved": "a trial is written in a transaction, what serves is not",
        "promotion.kept": "a trial and what serves are committed, no process has read it",
        "order.served": "what serves is written in a transaction, the trial and the audit are not",
        "order.saved": "what serves and the trial are written in a transaction, the audit is not",
        "gate.noted": "the gate has changed in memory alone",
        "gate.saved": "the gate is written in a transaction, its history is not",
        "gate.written": "one of several changes of the gate is committed",
        "retention.rewarded": "rewards of old rollouts are gone in a transaction, these are not",
        "retention.vacuumed": "some free pages are given back, others are not",
        "queue.enqueued": "a rollout is written in a transaction, its place in the queue is not",
        "queue.claimed": "a rollout runs in a transaction, and still has its place in the queue",
        "queue.finished": "an attempt is ended in a transaction, its rollout is not moved",
        "ship.read": "rollouts are read from the spool, the hub has none of them",
        "ship.stored": "the hub has rollouts, the spool has not marked them",
        "ship.marked": "sent rollouts are marked in a transaction of the spool, not committed",
        "evidence.stored": "an episode is in the store, its record is not written",
        "evidence.recorded": "an episode's record is written",
        "publication.published": "a report is where it is published, the index does not have it",
        "publication.archived": "a report is archived, the index has it where it was published",
        "publication.indexed": "the index is written, what has moved or goes is still there",
        "publication.unlinked": "an archived report is deleted where it was published",
        "publication.noted": "a purge is noted, the index still has what goes",
        "publication.deleted": "one of the files that a purge leaves is gone, others are not",
    }
)
"""What has been done and what has not at each point."""

listeners: list[Callable[[str], None]] = []
"""Called with the name of every point that is reached; only tests, and the children of a drill,
add to it."""


def point(name: str) -> None:
    """Call the listeners of a point that is reached; processes that serve a host have none."""
    if listeners:  # half the cost of an empty loop
        for listener in listeners:
            listener(name)
