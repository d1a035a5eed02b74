"""Stores of any size, filled by a few statements as a long life would have filled them."""

from pathlib import Path

from tau_live.core.records import RolloutConfig
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import queued

AT_ONCE = 10_000
"""Rollouts of one transaction, so that a page holds what came at one time."""

EACH_UPDATE = 8
RUNS_OF_A_SESSION = 10
WAITING = 200
POINT = "model"

NUMBERS = """
with recursive numbers (n) as (
    select :first union all select n + 1 from numbers where n < :last
)
"""

FILLING = (
    f"""{NUMBERS}
    insert into rollouts (
        seq, rollout_id, host, run_id, session_id, name, status, reason, max_attempts, retry_on,
        metadata, attempt_count, started_at, ended_at, ready_seq, total_reward, run_reward
    )
    select n, printf('live-%08x-%04x', n * 2654435761 % 4294967296, n % 65536), 'tau_live',
        printf('run-%d', n), printf('session-%d', n / {RUNS_OF_A_SESSION}), 'triage', 'succeeded',
        'completed', 1, '[]', '{{"ticket":17}}', 1, n, n + 0.5, n, n % 2, n % 2
    from numbers
    """,
    f"""{NUMBERS}
    insert into attempts (rollout_seq, number, status, execution, started_at, last_heartbeat_at,
        ended_at)
    select n, 1, 'succeeded', '', n, n, n + 0.5 from numbers
    """,
    f"""{NUMBERS}
    insert into recorded_spans (rollout_seq, attempt, span_id, parent_span_id, kind, name,
        status, attributes, started_at, ended_at, reported)
    select n, 1, printf('span-%d', value), null, 'tool', 'search', 'ok',
        '{{"tool":"search","call_id":"call","duration_ms":1.5}}', n, n + 0.1, 3
    from numbers, json_each('[1, 2, 3]')
    """,
    f"""{NUMBERS}
    insert into decisions (rollout_seq, attempt, ordinal, point, options, chosen, applied,
        default_option, source, propensity, probabilities, value, policy_version, arm, share,
        latency_us, at, context, features, encoded)
    select n, 1, 1, '{POINT}', '["small","large"]', 'small', 'small', 'large', 'policy', 0.5,
        '[0.5,0.5]', 0.0, n / {EACH_UPDATE}, 'learner', 0.9, 12.5, n, '{{"words":120}}', '{{}}',
        zeroblob(64)
    from numbers
    """,
    f"""{NUMBERS}
    insert into arms (rollout_seq, point, arm, share) select n, '{POINT}', 'learner', 0.9
    from numbers
    """,
    f"""{NUMBERS}
    insert into rewards (rollout_id, decision_id, name, value, source, key, at)
    select rollout_id, '', 'solved', n % 2, 'user', '', n + 1 from numbers
    join rollouts on seq = n
    """,
    f"""{NUMBERS}
    insert into ready_points (rollout_seq, point, ready_seq) select n, '{POINT}', n from numbers
    """,
    f"""{NUMBERS}
    insert into updates (point, executed, skipped_reason, version, parent, first_ready, last_ready,
        trajectories, samples, at, report)
    select '{POINT}', 0, 'one_reward', null, 0, n - {EACH_UPDATE - 1}, n, {EACH_UPDATE},
        {EACH_UPDATE}, n, '{{}}'
    from numbers where n % {EACH_UPDATE} = 0
    """,
    f"""{NUMBERS}
    insert into policies (version, point, parent, algorithm, sha256, file, rollouts, created_at,
        metadata)
    select n / {EACH_UPDATE}, '{POINT}', n / {EACH_UPDATE} - 1, 'ppo', printf('%064x', n),
        printf('policy-%08d.tlp', n / {EACH_UPDATE}), {EACH_UPDATE}, n, '{{}}'
    from numbers where n % {EACH_UPDATE} = 0
    """,
    f"""
    insert into trials values ('{POINT}', 0, null, null, null, 0, null, :last, 0, 0, 1, '{{}}',
        '{{}}', '{{}}', 0, 1)
    on conflict (point) do update set watermark = excluded.watermark
    """,
    "update sequences set value = :last where name = 'ready'",
    f"update sequences set value = :last / {EACH_UPDATE} where name = 'policy'",
)
"""What happened to rollouts ``:first`` to ``:last``: each began, decided, ended, was rewarded."""


def grown(path: Path, rollouts: int) -> SqliteStore:
    """Return a store with so many rollouts that were learned from, and a queue."""
    store = SqliteStore.open(path)
    for first in range(1, rollouts + 1, AT_ONCE):
        last = min(rollouts, first + AT_ONCE - 1)
        with store.begin():
            for statement in FILLING:
                known = {"first": first, "last": last}
                asked = {name: value for name, value in known.items() if f":{name}" in statement}
                store._connection.change(statement, asked)
    with store.begin():
        for number in range(WAITING):
            row = queued(f"job-{number}", RolloutConfig(timeout_s=1e9))
            store.queue.enqueue(row, at=1.0)
    store.retention.empty_log()
    return store
