"""Views that read well in Datasette or any other tool: the tables, in words.

They show ids, numbers, names and times; nothing that a host's texts may be in: neither inputs,
attributes, contexts and features, nor comments and metadata.
"""

from collections.abc import Sequence

from tau_live.store.sqlite_alerts import ALERTING

_POLICY = """case
    when decisions.policy_version = 0 then 'the untrained policy'
    else 'version ' || decisions.policy_version
end"""
_DECISION_ID = (
    "rollouts.rollout_id || ':attempt-' || decisions.attempt || ':decision-' || decisions.ordinal"
)

VIEWS: Sequence[str] = (
    """
    create view rollouts_in_words as
    select
        rollout_id, name, host, status,
        coalesce(error_type, reason) as ended_with,
        total_reward as reward,
        case
            when left_out is not null then 'left out: ' || left_out
            when ready_seq is not null then 'ready to be learned from'
            when exists (select 1 from awaiting where rollout_seq = rollouts.seq)
            then 'waits for its reward'
            when ended_at is null then 'goes on'
            else 'no reward'
        end as learning,
        (select count(*) from decisions where rollout_seq = rollouts.seq) as decisions,
        attempt_count as attempts,
        datetime(started_at, 'unixepoch') as started_utc,
        round(ended_at - started_at, 3) as took_s,
        session_id, parent_id
    from rollouts order by seq desc
    """,
    f"""
    create view decisions_in_words as
    select
        {_DECISION_ID} as decision_id,
        rollouts.rollout_id,
        decisions.point,
        case
            when decisions.source in ('policy', 'import')
            then case
                when decisions.source = 'import' then 'somebody else' else {_POLICY}
            end || ' chose ' || coalesce(decisions.chosen, decisions.applied, 'nothing')
            || case
                when decisions.applied <> decisions.chosen
                then ', the host did ' || decisions.applied
                when decisions.propensity is null then ''
                else printf(' with %.3g %%', 100.0 * decisions.propensity)
            end
            else 'the host chose ' || coalesce(decisions.applied, decisions.chosen, 'nothing')
            || case
                when decisions.applied <> decisions.chosen
                then ', ' || {_POLICY} || ' would have taken ' || decisions.chosen
                else ''
            end
        end
        || case
            when decisions.why_not is null then '' else ' (' || decisions.why_not || ')'
        end as in_words,
        (
            select group_concat(
                offered.value
                || case
                    when likely.value is null then ''
                    else printf(' %.3g %%', 100.0 * likely.value)
                end, ', '
            )
            from json_each(decisions.options) as offered
            left join json_each(decisions.probabilities) as likely on likely.key = offered.key
        ) as options_and_probabilities,
        decisions.chosen,
        decisions.applied,
        decisions.default_option as host_choice,
        decisions.propensity as probability,
        decisions.policy_version as version,
        decisions.arm,
        rollouts.total_reward as reward,
        round(decisions.latency_us / 1000.0, 3) as took_ms,
        datetime(decisions.at, 'unixepoch') as at_utc
    from decisions join rollouts on rollouts.seq = decisions.rollout_seq
    order by decisions.seq desc
    """,
    """
    create view updates_in_words as
    select
        number as update_number,
        point,
        case
            when version is not null
            then 'made version ' || version || ' from '
                || case when parent = 0 then 'the untrained policy' else parent end
            when executed then 'made nothing that was kept'
            else 'skipped: ' || coalesce(skipped_reason, 'no reason')
        end as in_words,
        trajectories as rollouts,
        samples as decisions,
        version,
        datetime(at, 'unixepoch') as at_utc
    from updates order by number desc
    """,
    """
    create view versions_in_words as
    select
        policies.version,
        policies.point,
        case
            when in_service.version is null then 'does not decide'
            when in_service.pinned then 'decides, pinned'
            else 'decides'
        end
        || case when trials.champion = policies.version then '; the champion' else '' end
        as in_words,
        policies.parent,
        policies.rollouts,
        policies.algorithm,
        datetime(policies.created_at, 'unixepoch') as made_utc
    from policies
    left join in_service
    on in_service.point = policies.point and in_service.version = policies.version
    left join trials on trials.point = policies.point
    order by policies.version desc
    """,
    """
    create view drops_in_words as
    select
        case
            when name glob 'dropped_*' then 'dropped before it was stored'
            when name glob 'left_out_*' then 'stored, not learned from'
            when name glob 'critic_only_*' then 'taught the critic alone'
            when name glob '*refused*' or name glob '*malformed*' then 'refused'
            when name glob 'duplicate_*' then 'was there already'
            else 'counted'
        end as what,
        replace(
            replace(replace(replace(name, 'dropped_', ''), 'left_out_', ''), 'critic_only_', ''),
            '_', ' '
        ) as reason,
        value as times,
        name as counter
    from counters where value > 0 order by value desc, name
    """,
    """
    create view audit_in_words as
    select
        seq,
        datetime(at, 'unixepoch') as at_utc,
        who,
        replace(action, '_', ' ') as action,
        json_extract(details, '$.point') as point,
        json_extract(details, '$.version') as version,
        reason
    from audit order by seq desc
    """,
    """
    create view alerts_in_words as
    select
        seq,
        datetime(at, 'unixepoch') as at_utc,
        severity, kind, subject, sentence,
        todo as look_at,
        suppressed as suppressed_before
    from alerts order by seq desc
    """,
)

SHOWING: Sequence[str] = (*ALERTING, *VIEWS)
"""Alerts and views: the part of the schema that is for people."""
