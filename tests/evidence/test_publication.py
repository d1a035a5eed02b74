"""Publication: reports are published, archived and purged; none is lost, and none is there twice.

Dates are those of the contract's section 9, or were counted by hand.
"""

import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from tau_live.cli.bench_publication import archive as archive_command
from tau_live.cli.bench_publication import gc_reports, index
from tau_live.cli.bench_publication import publish as publish_command
from tau_live.cli.commands import Commands
from tau_live.core.records import AuditEntry
from tau_live.evidence.artifacts import ArtifactError, Names, seconds_of, timestamp
from tau_live.evidence.claims import claims_of
from tau_live.evidence.comparison import publication_of, retention_of
from tau_live.evidence.index import (
    INDEX,
    PURGED,
    Entry,
    Index,
    Invalid,
    entry_of,
    index_of,
    known_levels,
    quality_of,
    read_report,
)
from tau_live.evidence.publication import Move, archive, publish, purge, rebuild
from tau_live.evidence.reports import Keeping
from tau_live.evidence.running import Frozen, freeze, store_of
from tau_live.evidence.validation import validate
from tests.adopted import adopt
from tests.cli.test_keys import undocumented
from tests.evidence.kept import (
    ALL,
    CRITERIA,
    DAY_S,
    MADE,
    ONE,
    SUITE,
    TWO,
    Project,
    compare,
    copied,
    measure,
    project,
    summarize,
    tree,
)
from tests.evidence.publishing import NOW
from tests.faults import arming
from tests.faults.server import Server
from tests.faults.workloads import with_versions

pytestmark = pytest.mark.slow

KINDS = ("baseline", "trained", "significance")
ARCHIVED, EXPIRED = NOW + 30 * DAY_S, NOW + 365 * DAY_S


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with two runs; nobody writes to it."""
    own = project(tmp_path_factory.mktemp("original"))
    for run_id in (ONE, TWO):
        measure(own, run_id)
        compare(own, run_id)
    return own


@pytest.fixture
def own(original: Project, tmp_path: Path) -> Project:
    """A copy of it."""
    return copied(original, tmp_path / "project")


def published(run_id: str = ONE, made: str = MADE) -> list[str]:
    return [publication_of(run_id, kind, made).report_path for kind in KINDS]


def archived(run_id: str = ONE, made: str = MADE) -> list[str]:
    return [publication_of(run_id, kind, made).archive_path for kind in KINDS]


def publish_run(own: Project, run_id: str = ONE) -> list[Move]:
    return publish(own.against, [own.place(Names(run_id).proof)])


def stored_index(own: Project) -> Index:
    return msgspec.json.decode(own.place(INDEX).read_bytes(), type=Index)


def states(own: Project) -> list[str]:
    return [entry.state for entry in stored_index(own).entries]


def code_of(refused: pytest.ExceptionInfo[ArtifactError]) -> str:
    return refused.value.faults[0].code


# Dates


@pytest.mark.parametrize(
    ("made", "days", "archive_due", "purge_due", "month"),
    [
        pytest.param(
            "2026-11-22T07:30:00Z", (30, 365), "2026-12-22T07:30:00Z", "2027-11-22T07:30:00Z",
            "2026/11", id="of the contract",
        ),
        pytest.param(
            "2026-01-31T23:59:59Z", (30, 365), "2026-03-02T23:59:59Z", "2027-01-31T23:59:59Z",
            "2026/01", id="the end of January: days, not months",
        ),
        pytest.param(
            "2028-02-29T00:00:00Z", (30, 365), "2028-03-30T00:00:00Z", "2029-02-28T00:00:00Z",
            "2028/02", id="a leap day",
        ),
        pytest.param(
            "2027-12-31T23:59:59Z", (60, 366), "2028-02-29T23:59:59Z", "2028-12-31T23:59:59Z",
            "2027/12", id="over a leap day",
        ),
        pytest.param(
            "2026-12-31T23:59:59Z", (0, 1), "2026-12-31T23:59:59Z", "2027-01-01T23:59:59Z",
            "2026/12", id="at once, over the end of a year",
        ),
    ],
)  # fmt: skip
def test_a_report_is_due_after_days_and_archived_in_its_own_month(
    original: Project, made: str, days: tuple[int, int], archive_due: str, purge_due: str,
    month: str,
) -> None:  # fmt: skip
    report = read_report(original.root, Names(ONE).report("baseline"))
    keeping = Keeping(archive_after_days=days[0], retain_days=days[1])
    where = publication_of(ONE, "baseline", made)
    head = msgspec.structs.replace(
        report.head, generated_at=made, publication=where, retention=retention_of(made, keeping)
    )

    entry = entry_of(report._replace(path=where.report_path, head=head), "store")

    assert (entry.archive_due, entry.purge_due) == (archive_due, purge_due)
    assert entry.path == f".tau/reports/m24/{ONE}/m24-benchmark-report-baseline.json"
    assert entry.archive_path == (
        f".tau/reports/archive/m24/{month}/m24-benchmark-report-{ONE}-baseline.json"
    )


@pytest.mark.parametrize(
    ("keeping", "code"),
    [
        ({"policy": "forever"}, "bad_retention_policy"),
        ({"retain_days": 0}, "bad_retain_days"),
        ({"retain_days": 10, "archive_after_days": 20}, "bad_archive_after_days"),
        ({"archive_after_days": -1}, "bad_archive_after_days"),
    ],
)
def test_a_retention_that_cannot_be_is_refused(keeping: dict[str, object], code: str) -> None:
    with pytest.raises(ArtifactError) as refused:
        Keeping(**keeping)  # type: ignore[arg-type]  # wrong on purpose

    assert code_of(refused) == code


@pytest.mark.parametrize(
    "made", ["2096-02-29T07:30:00Z", "2096-01-31T23:59:59Z", "2095-12-31T00:00:00Z"]
)
def test_it_moves_at_its_second_and_not_before(own: Project, made: str) -> None:
    compare(own, made=made)
    against = own.against._replace(now=seconds_of(made))
    publish(against, [own.place(Names(ONE).proof)])
    at = seconds_of(made) + 30 * DAY_S

    before = archive(against, now=at - 1)
    moves = archive(against, now=at)

    assert before == []
    assert [move.to for move in moves] == sorted(archived(made=made))
    assert not any(own.place(path).exists() for path in published())


# Publishing


def test_a_proof_publishes_its_three_reports_which_are_valid_where_they_lie(own: Project) -> None:
    moves = publish_run(own)

    assert [(move.action, move.to) for move in moves] == [
        ("published", path) for path in published()
    ]
    assert all(
        own.place(path).read_bytes() == own.report(kind).read_bytes()
        for kind, path in zip(KINDS, published(), strict=True)
    )
    assert all(validate(own.place(path), own.against).valid for path in published())


def test_the_index_has_all_of_a_report(own: Project) -> None:
    publish(own.against, [own.report("significance")])

    content = own.report("significance").read_bytes()
    assert json.loads(own.place(INDEX).read_bytes()) == {
        "schema_version": 1,
        "entries": [
            {
                "report_kind": "significance", "run_id": ONE, "suite_id": SUITE,
                "generated_at": MADE, "state": "active", "path": published()[2],
                "archive_path": archived()[2],
                "sha256": sha256(content).hexdigest(),
                "level": "store", "pass": False, "archive_due": "2096-03-30T07:30:00Z",
                "purge_due": "2097-02-28T07:30:00Z",
            }
        ],
        "invalid": [],
    }  # fmt: skip


def test_the_same_content_again_is_no_error(own: Project) -> None:
    publish_run(own)
    before = tree(own)

    moves = publish_run(own)

    assert [move.action for move in moves] == ["unchanged"] * 3
    assert tree(own) == before


def test_another_content_is_never_published_over_the_first(own: Project) -> None:
    publish_run(own)
    compare(own, made="2096-03-01T00:00:00Z")
    before = tree(own)

    with pytest.raises(ArtifactError, match=published()[0]) as refused:
        publish_run(own)

    assert code_of(refused) == "already_published"
    assert tree(own) == before


@pytest.mark.parametrize("again", ["2096-02-29T08:00:00Z", "2096-03-01T00:00:00Z"])
def test_nothing_is_published_over_what_is_archived(own: Project, again: str) -> None:
    publish_run(own)
    archive(own.against, now=ARCHIVED)

    moves = publish_run(own)
    compare(own, made=again)
    with pytest.raises(ArtifactError, match=archived()[0]) as refused:
        publish_run(own)

    assert [(move.action, move.to) for move in moves] == [
        ("unchanged", path) for path in archived()
    ]
    assert code_of(refused) == "already_published"


def test_one_that_is_not_valid_is_refused_and_the_others_with_it(own: Project) -> None:
    report = own.report("trained")
    report.write_bytes(report.read_bytes().replace(b'"known": 10', b'"known": 9'))

    with pytest.raises(ArtifactError) as refused:
        publish(own.against, [own.report("baseline"), report])

    assert code_of(refused) == "records_count_mismatch"
    assert not own.place(".tau/reports/m24").exists()


@pytest.mark.parametrize("what", ["safety-regression", "inputs"])
def test_only_reports_are_published(own: Project, what: str) -> None:
    names = Names(ONE)
    path = names.inputs if what == "inputs" else names.report(what)

    with pytest.raises(ArtifactError) as refused:
        publish(own.against, [own.place(path)])

    assert code_of(refused) == "bad_report_kind"


def test_what_the_store_lacks_is_published_only_if_that_is_asked_for(own: Project) -> None:
    own.settings.store.unlink()
    store_of(own.settings).close()

    with pytest.raises(ArtifactError) as refused:
        publish_run(own)
    publish(own.against, [own.place(Names(ONE).proof)], allow_records=True)

    assert code_of(refused) == "record_not_in_store"
    assert {entry.level for entry in stored_index(own).entries} == {"records"}


def test_what_the_store_contradicts_is_never_published(own: Project, original: Project) -> None:
    records = Names(ONE).records("trained")
    lines = own.place(records).read_bytes().replace(b'"tokens":12', b'"tokens":11')
    own.place(records).write_bytes(lines)
    compare(own)

    with pytest.raises(ArtifactError) as refused:
        publish(own.against, [own.report("trained")], allow_records=True)

    assert original.place(records).read_bytes() != lines
    assert code_of(refused) == "record_differs_from_store"


@pytest.mark.parametrize(
    ("place", "code"),
    [
        (f".tau/reports/m24/{TWO}/m24-benchmark-report-baseline.json", "path_run_id_mismatch"),
        (f".tau/reports/m24/{ONE}/m24-benchmark-report-trained.json", "bad_report_path"),
        (f".tau/reports/other/{ONE}/m24-benchmark-report-baseline.json", "bad_report_path"),
        (".tau/reports/m24-benchmark-report-baseline.json", "bad_report_path"),
        (
            f".tau/reports/archive/m24/2096/03/m24-benchmark-report-{ONE}-baseline.json",
            "bad_archive_path",
        ),
        (
            f".tau/reports/archive/m24/2096/02/m24-benchmark-report-{TWO}-baseline.json",
            "path_run_id_mismatch",
        ),
    ],
)
def test_a_report_is_valid_only_where_it_belongs(own: Project, place: str, code: str) -> None:
    own.place(place).parent.mkdir(parents=True)
    shutil.copy(own.report("baseline"), own.place(place))

    found = validate(own.place(place), own.against)
    made = index_of(own.against, {})

    assert [error.code for error in found.errors] == [code]
    assert made.entries == []
    assert [(one.path, one.reason.partition(":")[0]) for one in made.invalid] == [(place, code)]


# Archive and gc


def test_a_report_that_is_retained_stays_where_it_is(own: Project) -> None:
    compare(own, keeping=Keeping(policy="retain-only"))
    publish_run(own)

    moves = archive(own.against, now=EXPIRED)
    purged = purge(own.against, now=EXPIRED)

    assert moves == purged.moves == []
    assert states(own) == ["active"] * 3
    assert {entry.archive_due for entry in stored_index(own).entries} == {None}


def test_a_report_that_is_retained_goes_if_that_is_asked_for(own: Project) -> None:
    compare(own, keeping=Keeping(policy="retain-only"))
    publish_run(own)

    early = purge(own.against, now=EXPIRED - 1, purge_retained=True)
    purge(own.against, now=EXPIRED, purge_retained=True)

    assert early.moves == []
    assert states(own) == ["purged"] * 3


def test_a_run_goes_with_its_last_report_and_others_stay(own: Project) -> None:
    publish_run(own)
    publish_run(own, TWO)
    archive(own.against, now=ARCHIVED)
    newest = {f"tasks/reports/m24-benchmark-{kind}.json" for kind in (*KINDS, "safety-regression")}
    compare(own, TWO, keeping=Keeping(policy="retain-only"))  # so its working reports differ
    before = tree(own)

    purged = purge(own.against, now=EXPIRED)

    gone = {path for path, content in before.items() if path not in tree(own) and content}
    assert gone == {move.path for move in purged.moves}
    assert gone == {path for path in before if f"{ONE}." in path or f"-{ONE}-" in path} | {
        path for path in before if f"report-{TWO}-" in path
    }
    assert newest <= tree(own).keys()


def test_gc_deletes_nothing_before_it_is_due_or_archived(own: Project) -> None:
    publish_run(own)

    active = purge(own.against, now=EXPIRED)
    archive(own.against, now=ARCHIVED)
    early = purge(own.against, now=EXPIRED - 1)

    assert active.moves == early.moves == []
    assert states(own) == ["archived"] * 3


def test_records_stay_while_a_report_of_the_run_does(own: Project) -> None:
    compare(own, keeping=Keeping(retain_days=30))
    publish(own.against, [own.report("trained")])
    compare(own)
    publish(own.against, [own.report("baseline")])
    archive(own.against, now=ARCHIVED)

    purged = purge(own.against, now=ARCHIVED)

    assert purged.moves == [Move("purged", archived()[1], None)]
    assert validate(own.place(archived()[0]), own.against).valid


def test_a_dry_run_names_what_goes_and_deletes_nothing(own: Project) -> None:
    publish_run(own)
    archive(own.against, now=ARCHIVED)
    before = tree(own)

    named = purge(own.against, now=EXPIRED, dry_run=True)
    unchanged = tree(own)
    purged = purge(own.against, now=EXPIRED)

    assert unchanged == before
    assert named == purged
    assert len(named.moves) > 10


def test_a_working_report_that_was_never_published_keeps_its_run_and_that_is_told(
    own: Project,
) -> None:
    publish(own.against, [own.report("baseline")])
    archive(own.against, now=ARCHIVED)

    named = purge(own.against, now=EXPIRED, dry_run=True)
    purged = purge(own.against, now=EXPIRED)

    assert named == purged
    assert purged.moves == [Move("purged", archived()[0], None)]
    assert [kept.path for kept in purged.kept] == [Names(ONE).inputs]
    assert Names(ONE).report("trained") in purged.kept[0].reason
    assert validate(own.report("trained"), own.against).valid


def test_no_other_command_moves_anything_meanwhile(own: Project) -> None:
    refused = []

    def other(_point: str) -> None:
        descriptor = os.open(own.place(".tau/reports"), os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            refused.append(_point)
        os.close(descriptor)

    with arming.listen(other):
        publish_run(own)

    assert refused.count("publication.published") == 3


def test_a_summary_is_published_and_keeps_the_records_of_its_runs(own: Project) -> None:
    for run_id in (ONE, TWO):
        compare(own, run_id, keeping=Keeping(retain_days=30))
        publish_run(own, run_id)
    publish(own.against, [summarize(own, ONE, TWO)])
    entry = stored_index(own).entries[0]
    archive(own.against, now=ARCHIVED)

    first = purge(own.against, now=ARCHIVED)
    is_valid = validate(own.place(entry.archive_path), own.against).valid
    purge(own.against, now=EXPIRED)

    assert (entry.report_kind, entry.suite_id, entry.pass_) == ("summary", SUITE, False)
    assert entry.path == f".tau/reports/m24/{ALL}/m24-benchmark-report-summary.json"
    assert entry.level == "store"
    assert [move.path for move in first.moves] == sorted(archived() + archived(TWO))
    assert {kept.reason for kept in first.kept} == {f"{entry.archive_path} names it"}
    assert is_valid
    assert not [path for path in tree(own) if path.startswith("tasks/reports/")]


def test_a_summary_is_checked_against_the_store_like_its_runs(own: Project) -> None:
    summary = summarize(own, ONE, TWO)
    own.settings.store.unlink()
    store_of(own.settings).close()

    with pytest.raises(ArtifactError) as refused:
        publish(own.against, [summary])

    assert code_of(refused) == "record_not_in_store"


def test_a_run_that_is_named_after_its_reports_were_purged_stays(own: Project) -> None:
    compare(own, keeping=Keeping(retain_days=30))
    publish_run(own)
    publish(own.against, [summarize(own, ONE)])
    archive(own.against, now=ARCHIVED)
    purge(own.against, now=ARCHIVED)
    own.root.write("tasks/reports/m24-gate-evidence-m24-gate.json", {"run_id": ONE})

    purge(own.against, now=EXPIRED)

    assert validate(own.place(Names(ONE).proof), own.against).valid


def test_what_was_purged_is_not_published_again(own: Project) -> None:
    publish_run(own)
    archive(own.against, now=ARCHIVED)
    kept = {path: content for path, content in tree(own).items() if path.startswith("tasks")}
    purge(own.against, now=EXPIRED)
    for path, content in kept.items():
        if content is not None:
            own.place(path).write_bytes(content)

    with pytest.raises(ArtifactError, match="purged") as refused:
        publish_run(own)

    assert code_of(refused) == "already_published"


def test_a_run_frozen_again_under_the_same_id_is_not_deleted(own: Project) -> None:
    publish_run(own)
    archive(own.against, now=ARCHIVED)
    inputs = own.place(Names(ONE).inputs)
    inputs.write_bytes(own.place(Names(TWO).inputs).read_bytes())
    levels = known_levels(own.root)

    purged = purge(own.against, now=EXPIRED)

    assert {*levels.values()} == {"store"}
    assert own.place(Names(ONE).records("trained")).exists()
    assert purged.moves == []
    assert "nobody can tell what it has measured" in purged.kept[0].reason


# What is named


@pytest.fixture(scope="module")
def champion(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose run proves a policy that is in service; nobody writes to it."""
    own = project(tmp_path_factory.mktemp("champion"))
    with_versions(own.settings, 16)
    with closing(store_of(own.settings)) as store:
        version = store.policies.in_service()["model"].version
    measure(own, ONE, f"policy:model@{version}")
    compare(own)
    publish_run(own)
    archive(own.against, now=ARCHIVED)
    return own


def test_a_proof_named_by_a_champion_survives(champion: Project, tmp_path: Path) -> None:
    own = copied(champion, tmp_path / "project")
    before = tree(own)

    purged = purge(own.against, now=EXPIRED)

    assert tree(own) == before
    assert [kept.path for kept in purged.kept] == sorted(archived())
    assert {kept.reason for kept in purged.kept} == {"policy:model@2 is in use"}


def test_without_a_store_nobody_can_tell_whether_a_policy_is_in_use(
    champion: Project, tmp_path: Path
) -> None:
    own = copied(champion, tmp_path / "project")

    purged = purge(own.against._replace(settings=None), now=EXPIRED)

    assert purged.moves == []
    assert "no store can tell" in purged.kept[0].reason


def test_a_proof_of_a_policy_that_no_longer_serves_goes(champion: Project, tmp_path: Path) -> None:
    own = copied(champion, tmp_path / "project")
    with closing(store_of(own.settings)) as store:
        store.policies.put_in_service("model", 0, pinned=True, at=2.0)

    purged = purge(own.against, now=EXPIRED)

    assert purged.kept == []
    assert not own.place(Names(ONE).proof).exists()


@pytest.mark.parametrize(("state", "is_kept"), [("adopted", True), ("withdrawn", False)])
def test_a_prompt_that_is_adopted_keeps_its_run(own: Project, state: str, is_kept: bool) -> None:
    publish_run(own)
    entries = [
        msgspec.structs.replace(entry, run_id="m24-three") for entry in stored_index(own).entries
    ]
    with closing(store_of(own.settings)) as store:
        version = adopt(store, "be brief", state=state)
        plan = Frozen(
            f"{SUITE}.json", "host", f"prompt:{version}", [1], model_ref="test/any",
            criteria=CRITERIA,
        )  # fmt: skip
        freeze(own.root, "m24-three", plan, store=store, settings=own.settings)

    reason = claims_of(own.root, own.settings).on(own.root, entries)

    assert (reason is not None) is is_kept


@pytest.mark.parametrize("named", ["run id", "path", "absolute path", "digest", "proof_sha256"])
@pytest.mark.parametrize("by", ["audit", "bundle"])
def test_what_the_audit_or_a_gate_bundle_names_survives(own: Project, by: str, named: str) -> None:
    publish_run(own)
    archive(own.against, now=ARCHIVED)
    proof = own.place(Names(ONE).proof)
    names = {
        "run id": ONE,
        "path": Names(ONE).proof,
        "absolute path": f"/elsewhere/{archived()[2]}",
        "digest": own.root.reference(Names(ONE).proof).sha256,
        "proof_sha256": json.loads(proof.read_bytes())["proof_sha256"],
    }
    reference = {"benchmark": {"report_ref": [names[named]]}}
    if by == "audit":
        entry = AuditEntry(at=1.0, who="anna", action="promoted", reason="x", details=reference)
        with closing(store_of(own.settings)) as store:
            store.audit.add(entry)
    else:
        own.root.write("tasks/reports/m24-gate-evidence-m24-gate.json", reference)
    before = tree(own)

    purged = purge(own.against, now=EXPIRED)

    assert tree(own) == before
    assert len(purged.kept) == 3


def test_nothing_goes_while_a_gate_bundle_cannot_be_read(own: Project) -> None:
    publish_run(own)
    archive(own.against, now=ARCHIVED)
    own.place("tasks/reports/m24-gate-evidence-m24-gate.json").write_text("{")
    before = tree(own)

    with pytest.raises(ArtifactError):
        purge(own.against, now=EXPIRED)

    assert tree(own) == before


# The index


def test_the_index_is_made_again_from_the_files_alone(own: Project) -> None:
    compare(own, TWO, keeping=Keeping(policy="retain-only"))
    publish_run(own)
    archive(own.against, now=ARCHIVED)
    purge(own.against, now=EXPIRED)
    publish_run(own, TWO)
    before = own.place(INDEX).read_bytes()
    own.place(INDEX).unlink()

    rebuild(own.against)

    assert own.place(INDEX).read_bytes() == before
    assert states(own) == ["purged"] * 3 + ["active"] * 3


def test_a_report_whose_records_changed_is_found_when_the_index_is_made_again(own: Project) -> None:
    publish_run(own)
    with own.place(Names(ONE).records("trained")).open("ab") as file:
        file.write(b"{}\n")

    made = rebuild(own.against)

    assert made.entries == []
    assert [one.path for one in made.invalid] == sorted(published())


def test_a_damaged_index_is_made_again_and_a_damaged_list_of_purged_is_told(own: Project) -> None:
    publish_run(own)
    before = own.place(INDEX).read_bytes()
    own.place(INDEX).write_text("{")

    archive(own.against, now=NOW)
    own.place(PURGED).write_text("{")

    assert own.place(INDEX).read_bytes() == before
    with pytest.raises(ArtifactError):
        rebuild(own.against)


@pytest.mark.parametrize(
    ("valid", "invalid", "least", "most", "codes"),
    [
        (1, 0, 1, 0.2, []),
        (4, 1, 1, 0.2, []),
        (0, 0, 1, 0.2, ["no_valid_artifacts"]),
        (0, 1, 1, 0.2, ["no_valid_artifacts", "invalid_ratio_exceeded"]),
        (1, 0, 2, 0.2, ["below_min_valid_entries"]),
        (3, 1, 1, 0.2, ["invalid_ratio_exceeded"]),
        (1, 1, 2, 0.0, ["below_min_valid_entries", "invalid_ratio_exceeded"]),
        (1, 1, 1, 0.5, []),
    ],
)
def test_quality_says_all_that_is_wrong(
    original: Project, valid: int, invalid: int, least: int, most: float, codes: list[str]
) -> None:
    report = read_report(original.root, Names(ONE).report("baseline"))
    entry: Entry = entry_of(report, "store")
    gone = msgspec.structs.replace(entry, state="purged")
    made = Index(
        entries=[gone, *[entry] * valid], invalid=[Invalid(path="x", reason="not_json")] * invalid
    )

    found = quality_of(made, min_valid=least, max_invalid_ratio=most)

    assert (found.scanned, found.valid, found.invalid) == (valid + invalid, valid, invalid)
    assert found.invalid_ratio == (invalid / (valid + invalid) if valid + invalid else 0.0)
    assert (found.pass_, found.reason_codes) == (not codes, codes)


# Crashes


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server("tests.evidence.publishing", "tests.evidence.kept")
    yield made
    made.stop()


def done(server: Server, own: Project, command: str, crash_at: int = 0) -> list[str] | None:
    """Run a command in a child; return the points that it reached, or ``None`` if it was killed."""
    given = {"folder": str(own.root.folder), "command": command, "crash_at": crash_at}
    ended = server.run("tests.evidence.publishing:work", given)
    assert (ended.signal, ended.code) == (signal.SIGKILL if crash_at else 0, 0)
    return None if crash_at else [str(name) for name in ended.answer]  # type: ignore[attr-defined]  # a list


@pytest.mark.parametrize(
    ("command", "least"), [("publish", 22), ("archive", 26), ("gc", 18), ("index", 4)]
)
def test_killed_at_any_point_the_next_command_ends_as_if_it_had_not_been(
    server: Server, original: Project, tmp_path: Path, command: str, least: int
) -> None:
    before = copied(original, tmp_path / "before")
    for earlier in {"archive": ["publish"], "gc": ["publish", "archive"]}.get(command, []):
        done(server, before, earlier)
    clean = copied(before, tmp_path / "clean")
    points = done(server, clean, command)
    assert points is not None
    wrong = []

    for number, name in enumerate(points, start=1):
        own = copied(before, tmp_path / f"killed-{number}")
        done(server, own, command, crash_at=number)
        other = copied(own, tmp_path / f"other-{number}")
        done(server, own, command)
        done(server, other, "index")
        halves = [entry for entry in quality_of_tree(other) if "invalid" in entry]
        done(server, other, command)
        if tree(own) != tree(clean) or tree(other) != tree(clean) or halves:
            wrong.append(f"{number} {name}")
        shutil.rmtree(own.root.folder)
        shutil.rmtree(other.root.folder)

    assert len(points) >= least
    assert wrong == []


def quality_of_tree(own: Project) -> list[str]:
    """Return what an index says is invalid, or is there twice."""
    made = stored_index(own)
    twice = len({(entry.path, entry.sha256) for entry in made.entries}) < len(made.entries)
    return [f"invalid {one.path}" for one in made.invalid] + ["invalid: twice"] * twice


# Commands


Call = Callable[..., Result]


@pytest.fixture
def made(own: Project) -> str:
    """Make the reports now, as commands have no other clock for that; return when."""
    now = timestamp(time.time())
    for run_id in (ONE, TWO):
        compare(own, run_id, made=now)
    return now


@pytest.fixture
def called(own: Project, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call a command in a project, as the group of all commands would."""
    monkeypatch.chdir(own.root.folder)
    group = click.Group("evidence", commands=[publish_command, archive_command, gc_reports, index])
    main = Commands(name="tau-live", commands={"evidence": group})

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["evidence", *arguments])

    return call


STORED = ("--store", "store.sqlite")


def days_after(made: str, days: int) -> str:
    return timestamp(seconds_of(made) + days * DAY_S)


def test_each_file_that_moves_is_a_line(called: Call, made: str) -> None:
    proof = Names(ONE).proof
    archive_due, purge_due = days_after(made, 30), days_after(made, 365)

    lines = [
        called(*arguments, *STORED).stdout.splitlines()
        for arguments in (
            ("publish", proof),
            ("publish", proof),
            ("archive", "--now", archive_due),
            ("archive", "--now", archive_due),
            ("gc", "--now", purge_due, "--dry-run"),
            ("gc", "--now", purge_due),
            ("index",),
        )
    ]

    assert lines[0] == [
        f"published {Names(ONE).report(kind)} -> {path}"
        for kind, path in zip(KINDS, published(), strict=True)
    ]
    assert lines[1][0] == f"unchanged {Names(ONE).report('baseline')} -> {published()[0]}"
    assert lines[2][0] == f"archived {published()[0]} -> {archived(made=made)[0]}"
    assert lines[3] == ["nothing is due"]
    assert lines[4] == [f"would be {line}" for line in lines[5]]
    assert f"purged {Names(ONE).records('trained')}" in lines[5]
    assert lines[6][0] == f"purged {published()[0]}, checked against store"


def test_what_is_refused_is_one_line_and_exit_1(called: Call, own: Project, made: str) -> None:
    called("publish", Names(ONE).proof, *STORED)
    compare(own, made=days_after(made, 1))

    refused = called("publish", Names(ONE).proof, *STORED)

    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"tau-live: already_published: {published()[0]}")
    assert refused.stderr.count("\n") == 1


@pytest.mark.usefixtures("made")
def test_quality_that_does_not_suffice_is_exit_1(called: Call, own: Project) -> None:
    empty = called("index", "--quality", *STORED)
    called("publish", Names(ONE).proof, *STORED)
    own.place(published()[0]).write_text("{")

    refused = called("index", "--quality", *STORED)
    allowed = called("index", "--quality", "--max-invalid-ratio", "0.5", *STORED)
    more = called("index", "--quality", "--min-valid", "3", "--max-invalid-ratio", "1", *STORED)

    assert [one.exit_code for one in (empty, refused, allowed, more)] == [1, 1, 0, 1]
    assert empty.stdout == "0 of 0 valid, 0% invalid; no_valid_artifacts\n"
    assert refused.stdout == "2 of 3 valid, 33% invalid; invalid_ratio_exceeded\n"
    assert more.stdout == "2 of 3 valid, 33% invalid; below_min_valid_entries\n"


@pytest.mark.usefixtures("made")
def test_without_a_store_it_takes_a_flag(called: Call) -> None:
    refused = called("publish", Names(ONE).proof)
    wrong = called("publish", Names(ONE).proof, "--store", "none.sqlite")
    allowed = called("publish", Names(ONE).proof, "--allow-records")

    assert [one.exit_code for one in (refused, wrong, allowed)] == [1, 1, 0]
    assert "checked against records alone" in refused.stderr


def test_every_key_that_is_printed_is_described(called: Call, own: Project, made: str) -> None:
    archive_due, purge_due = days_after(made, 30), days_after(made, 365)
    own.place(".tau/reports").mkdir(parents=True)
    own.place(".tau/reports/odd.json").write_text("{}")
    with closing(store_of(own.settings)) as store:
        store.audit.add(
            AuditEntry(at=1.0, who="anna", action="x", reason="x", details={"run": TWO})
        )
    calls = {
        "bench publish": ("publish", Names(ONE).proof, Names(TWO).proof),
        "bench archive": ("archive", "--now", archive_due),
        "bench gc": ("gc", "--now", purge_due),
        "bench index": ("index", "--rebuild"),
        "bench index --quality": ("index", "--quality"),
    }

    printed = {name: called(*call, "--json", *STORED).stdout for name, call in calls.items()}

    unknown = {
        name: undocumented(name.removesuffix(" --quality"), json.loads(text))[0]
        for name, text in printed.items()
    }
    assert not any(unknown.values()), unknown
