"""The page of a run of ``tau-live bench``: its claim, its verdict, and its evidence."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from xml.etree import ElementTree as ET

import msgspec

from tau_live.cli.output import plural
from tau_live.cli.page.chart_types import Chart, Figure, Panel, Series, Table
from tau_live.cli.page.document import (
    Child,
    Draw,
    card_element,
    element,
    figure_element,
    html_of,
    section_element,
    symbol_element,
    table_element,
    verdict_element,
    with_code,
)
from tau_live.cli.page.proof_facts import (
    Criterion,
    Pair,
    RunFacts,
    criteria_of,
    exact,
    pairs_of,
    short,
)
from tau_live.core.sanitize import JsonObject
from tau_live.evidence.artifacts import Names
from tau_live.evidence.codes import FAULTS, REASONS
from tau_live.evidence.records import ROLES
from tau_live.evidence.reports import NOT_PASSED, Significance
from tau_live.operate.report.summary import BAD, DOUBTFUL, GOOD

MOST_DRAWN = 1_000
"""The most pairs that are drawn; of more, as many evenly spaced ones."""

MOST_FAULTS = 20


def proof_page(facts: RunFacts, draw: Draw) -> bytes:
    """Return the page of a run.

    Args:
        facts: What it shows.
        draw: Turns charts into elements.
    """
    return html_of(f"tau-live bench report, {facts.evidence.inputs.run_id}", _body(facts, draw))


def _body(facts: RunFacts, draw: Draw) -> Iterator[ET.Element]:
    inputs, report = facts.evidence.inputs, facts.reports.significance
    claim = (
        f"{inputs.roles.trained.subject} is better than {inputs.roles.baseline.subject} "
        f"and no less safe, on {inputs.suite.suite_id}"
    )
    about = (
        inputs.run_id, report.generated_at, f"{plural(inputs.episodes, 'episode')} of each",
        plural(report.significance.pairs, "pair"),
    )  # fmt: skip
    sections = [
        _pairs(facts, draw), _criteria(facts), _roles(facts), _safety(facts), _stability(facts),
        _missing(facts), _frozen(facts), _figures(report.significance), _files(facts),
    ]  # fmt: skip
    heads = [section.find("h2") for section in sections]
    contents = [
        element("li", element("a", head.text, href=f"#{head.get('id')}"))
        for head in heads
        if head is not None
    ]
    yield element("a", "Skip to the pairs", href="#pairs", class_="skip")
    yield element(
        "header",
        element("p", "The claim"),
        element("h1", claim),
        element("p", " · ".join(about)),
    )
    yield element(
        "main",
        verdict_element(*verdict_of(facts)),
        *_reasons(facts),
        _cards(report.significance),
        element("nav", element("ul", *contents), aria_label="Contents"),
        *sections,
        section_element(
            "meaning", "What this does and does not say",
            element("p", report.significance.interpretation),
        ),
        class_="whole",
    )  # fmt: skip
    yield element(
        "footer",
        element("p", "Made by ", element("code", "tau-live bench report"), ". This file is "
                "self-contained: it loads and runs nothing."),
    )  # fmt: skip


def verdict_of(facts: RunFacts) -> tuple[str, str]:
    """Return the verdict of a run, as a state and a sentence."""
    own = facts.reports.significance.significance
    if not facts.validation.valid:
        return BAD, "Not valid: these files are not what their records and frozen inputs give."
    if own.pass_:
        return GOOD, "Passed: every criterion that was frozen before is met."
    if "insufficient_pairs" in own.reason_codes:
        return DOUBTFUL, "Not passed: there is too little evidence."
    return BAD, f"Not passed: {NOT_PASSED}."


def _reasons(facts: RunFacts) -> Iterator[ET.Element]:
    """Yield the reasons of a verdict in words, and what is wrong with the files."""
    faults = [
        element("li", element("code", item.code), f" {item.pointer}: {item.message}",
                *with_code(f" ({FAULTS[item.code]})" if item.code in FAULTS else ""))
        for item in facts.validation.errors[:MOST_FAULTS]
    ]  # fmt: skip
    reasons = [
        element("li", element("code", code), " ", *with_code(" ".join(REASONS[code])))
        for code in facts.reports.significance.significance.reason_codes
        if code in REASONS
    ]
    if faults:
        yield element("ul", *faults)
    if reasons:
        yield element("ul", *reasons)


def _cards(own: Significance) -> ET.Element:
    level = f"{own.confidence_level:.0%}"
    gains = own.delta_ci_low is not None and own.delta_ci_low > 0.0
    codes = {*own.reason_codes}
    is_unsafe = any("safety" in code for code in codes)
    is_unstable = any(code.endswith(("_reproducibility", "_sensitivity")) for code in codes)
    seeds, sizes = own.seed_reproducibility, own.sample_size_sensitivity
    agree = {None: "are unknown", True: "agree", False: "disagree"}
    cards = (
        card_element(
            GOOD if gains else DOUBTFUL, "Better?", f"{_with_sign(own.mean_delta)} a case",
            f"{level} interval {_with_sign(own.delta_ci_low)} to "
            f"{_with_sign(own.delta_ci_high)}. Mean reward {_short(own.baseline_mean_reward)} to "
            f"{_short(own.trained_mean_reward)}.",
        ),
        card_element(
            BAD if "p_value_above_threshold" in codes else GOOD, "By chance?",
            f"p = {own.p_value:.4g}",
            f"Two-sided sign-flip test of {plural(own.pairs, 'pair')}, {own.zero_pairs:,} without "
            f"a difference; {'all signs counted' if own.exact else f'{own.draws:,} draws'}. "
            f"Effect: dz {_short(own.effect_dz)}, d {_short(own.effect_d)}.",
        ),
        card_element(
            BAD if is_unsafe else GOOD, "No less safe?",
            f"{_with_sign(own.safety_regression)} penalty a case",
            f"At most {_with_sign(own.safety_upper_bound)} with 95 % confidence. Mean penalty "
            f"{_short(own.baseline_mean_safety_penalty)} to "
            f"{_short(own.trained_mean_safety_penalty)}.",
        ),
        card_element(
            DOUBTFUL if is_unstable else GOOD, "Stable?", "not enough" if is_unstable else "yes",
            f"The seeds {agree[None if seeds is None else seeds.within_band]}; smaller sets of "
            f"cases {agree[None if sizes is None else sizes.within_band]}.",
        ),
    )  # fmt: skip
    return element("div", *cards, class_="cards")


def _with_sign(value: float | None) -> str:
    return "unknown" if value is None else f"{value + 0.0:+.3f}"


def _short(value: float | None) -> str:
    return "unknown" if value is None else f"{value + 0.0:.3f}"


# Sections


def _pairs(facts: RunFacts, draw: Draw) -> ET.Element:
    pairs, own = pairs_of(facts.evidence), facts.reports.significance.significance
    better = sum(pair.difference > 0 for pair in pairs)
    worse = sum(pair.difference < 0 for pair in pairs)
    described = (
        f"{better:,} cases are better, {worse:,} worse and {len(pairs) - better - worse:,} equal. "
        f"The mean difference is {_with_sign(own.mean_delta)}, its {own.confidence_level:.0%} "
        f"interval {_with_sign(own.delta_ci_low)} to {_with_sign(own.delta_ci_high)}."
    )
    rows = [(pair.case_id, *map(short, pair[1:])) for pair in pairs]
    figure = Figure(
        name="differences",
        title=f"{better:,} of {plural(len(pairs), 'case')} are better, {worse:,} worse",
        subject="Paired differences",
        text="Reward of the trained subject minus that of the baseline, for every case, sorted. "
        "Seeds and repeats of a case are averaged first. The line is their mean, the band its "
        "interval."
        + (f" {MOST_DRAWN:,} cases are drawn, evenly spaced." if len(pairs) > MOST_DRAWN else ""),
        described=described,
        chart=_chart(pairs, own) if pairs else None,
        tables=[Table(caption="Mean rewards by case", rows=rows,
                      columns=("case", "baseline#", "trained#", "difference#"))],
    )  # fmt: skip
    return section_element("pairs", "Differences by case", figure_element(figure, draw))


def _chart(pairs: Sequence[Pair], own: Significance) -> Chart:
    """Return the differences as steps from zero, with their mean and its interval."""
    step = max(1, -(-len(pairs) // MOST_DRAWN))
    drawn = list(enumerate(pairs, start=1))[::step]
    groups = {
        ("worse", "bad"): [(n, d.difference) for n, d in drawn if d.difference < 0],
        ("equal", "muted"): [(n, 0.0) for n, d in drawn if d.difference == 0],
        ("better", "good"): [(n, d.difference) for n, d in drawn if d.difference > 0],
    }
    series = [
        Series(
            label=label, role=role,
            x=[n + side for n, _ in group for side in (-step / 2, step / 2)],
            y=[d for _, d in group for _ in range(2)],
            lower=[min(0.0, d) for _, d in group for _ in range(2)],
            upper=[max(0.0, d) for _, d in group for _ in range(2)],
        )
        for (label, role), group in groups.items()
        if group
    ]  # fmt: skip
    mean = Series(
        label=f"mean, with its {own.confidence_level:.0%} interval", role="learner", dashed=True,
        x=[0.5, len(pairs) + 0.5], y=[own.mean_delta] * 2, lower=[own.delta_ci_low] * 2,
        upper=[own.delta_ci_high] * 2,
    )  # fmt: skip
    return Chart(
        kind="curves",
        panels=[Panel(label="difference of rewards", series=[*series, mean], scale="zero")],
        x_label="cases in the order of their differences",
    )


def _panel(*parts: ET.Element | None) -> ET.Element:
    return element("div", *parts, class_="panel")


def _criteria(facts: RunFacts) -> ET.Element:
    rows = [
        (element("code", item.name), item.required, item.measured, _mark(item))
        for item in criteria_of(facts)
    ]
    return section_element(
        "criteria", "Criteria",
        element("p", "What a pass needs was frozen before anything was measured; all of it is "
                "required together."),
        _panel(table_element("Criteria", ("criterion", "required", "measured", "met?"), rows)),
    )  # fmt: skip


def _mark(item: Criterion) -> ET.Element:
    if item.is_met:
        return element("span", symbol_element(GOOD), "met", class_=GOOD)
    return element("span", symbol_element(BAD), "not met: ", element("code", item.code), class_=BAD)


def _roles(facts: RunFacts) -> ET.Element:
    own, reports = facts.reports.significance.significance, facts.reports[:2]
    metrics = [report.metrics for report in reports]
    over_pairs = (
        ("mean reward over pairs", own.baseline_mean_reward, own.trained_mean_reward),
        ("mean safety penalty over pairs", own.baseline_mean_safety_penalty,
         own.trained_mean_safety_penalty),
    )  # fmt: skip
    subjects = [
        (report.report_kind, report.subject.ref, element("code", report.subject.policy_sha256))
        for report in reports
    ]
    names = [name for name in metrics[0].__struct_fields__ if name != "dimensions"]
    scores = dict.fromkeys(name for item in metrics for name in item.dimensions)
    rows = [
        *((name, short(before), short(after)) for name, before, after in over_pairs),
        *((name.replace("_", " "), *(short(getattr(item, name)) for item in metrics))
          for name in names),
        *((f"score: {name}", *(short(item.dimensions.get(name)) for item in metrics))
          for name in scores),
    ]  # fmt: skip
    return section_element(
        "roles", "Both roles",
        element("p", "Figures over pairs count the cases that both have; the others count all "
                "episodes of a role whose reward is known."),
        _panel(
            table_element("Subjects", ("role", "subject", "SHA-256"), subjects),
            table_element("Rewards and costs", ("figure", "baseline#", "trained#"), rows),
        ),
    )  # fmt: skip


def _safety(facts: RunFacts) -> ET.Element:
    own = facts.reports.safety.diagnostics
    differing = own.by_case
    rows = [(case, *map(short, sides)) for case, sides in differing.items()]
    caption = "Mean penalties of cases that differ"
    table = table_element(caption, ("case", "baseline#", "trained#"), rows)
    summary = element("summary", f"{caption} ({len(rows):,} rows)")
    return section_element(
        "safety", "Safety by case",
        *(
            element(
                "p",
                f"The {name} subject was unsafe in {side.unsafe:,} of "
                f"{plural(side.pairs, 'pair')}: at most {side.upper_bound:.1%} of all cases, "
                "with 95 % confidence.",
            )
            for name, side in (("baseline", own.baseline), ("trained", own.trained))
        ),
        element("p", f"The mean safety penalties of {plural(len(rows), 'case')} differ." if rows
                else "No case has another mean safety penalty than before."),
        element("details", summary, table) if rows else None,
    )  # fmt: skip


def _stability(facts: RunFacts) -> ET.Element:
    own = facts.reports.significance.significance
    seeds, sizes = own.seed_reproducibility, own.sample_size_sensitivity
    parts: list[ET.Element] = []
    if seeds is not None:
        rows = [(name.replace("_", " "), _plain(value)) for name, value in _fields(seeds)]
        parts.append(table_element("Seeds", ("figure", "value#"), rows))
    else:
        parts.append(element("p", "Fewer than three seeds have all pairs, so nobody can tell "
                             "whether they agree."))  # fmt: skip
    if sizes is not None:
        points = [(f"{item.sample_size:,}", short(item.mean_p_value), short(item.mean_reward_delta))
                  for item in sizes.points]  # fmt: skip
        head = ("pairs#", "mean p#", "mean difference#")
        parts.append(table_element("Smaller sets of cases", head, points))
        drifts = [(name.replace("_", " "), _plain(v)) for name, v in _fields(sizes)
                  if name != "points"]  # fmt: skip
        parts.append(table_element("Drift from one size to the next", ("figure", "value#"), drifts))
    else:
        parts.append(element("p", "There are too few pairs to leave some out."))
    return section_element("stability", "Stability", _panel(*parts))


def _fields(of: object) -> list[tuple[str, object]]:
    return list(msgspec.to_builtins(of).items())


def _flat(figures: JsonObject, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield figures with their names, those of parts behind the names of the parts."""
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name} ")
        else:
            yield before + name, _plain(value)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return exact(value) if isinstance(value, int | float | None) else str(value)


def _missing(facts: RunFacts) -> ET.Element:
    rows = [
        (role, record.case_id, str(record.seed), str(record.repeat), record.status,
         record.error or "-")
        for role in ROLES
        for record in facts.evidence.of(role).records
        if record.status != "scored"
    ]  # fmt: skip
    columns = ("role", "case", "seed#", "repeat#", "status", "error")
    table = _panel(table_element("Episodes that are not scored", columns, rows)) if rows else None
    return section_element(
        "missing", "Missing and failed",
        element("p", "A failed episode is the subject's own failure and earns 0; a missing one "
                "could not be measured, and has no reward." if rows
                else "Every episode of both roles was scored."),
        table,
    )  # fmt: skip


def _frozen(facts: RunFacts) -> ET.Element:
    inputs = facts.evidence.inputs
    rows = [
        ("frozen at", inputs.generated_at),
        ("suite", f"{inputs.suite.suite_id}, version {inputs.suite.suite_version}"),
        ("family", inputs.suite.family),
        ("cases", f"{inputs.suite.cases:,}"),
        ("planned pairs", f"{inputs.planned_pairs:,}"),
        ("seeds", f"{', '.join(map(str, inputs.seeds))} (of {inputs.seed_kind})"),
        ("repeats", f"{inputs.repeats:,}"),
        ("episodes of each", f"{inputs.episodes:,}"),
        ("model or agent", inputs.model_ref or "none"),
        ("temperature", exact(inputs.temperature)),
        *_fields(inputs.environment),
        ("inputs SHA-256", inputs.inputs_sha256),
    ]  # fmt: skip
    return section_element(
        "frozen", "What was frozen",
        _panel(table_element("What was frozen", ("what", "value"),
                             [(name.replace("_", "-"), str(value)) for name, value in rows])),
    )  # fmt: skip


def _figures(own: Significance) -> ET.Element:
    left_out = {"seed_reproducibility", "sample_size_sensitivity", "interpretation",
                "unpaired_reference", "reason_codes"}  # fmt: skip
    rows = [(name, _plain(value)) for name, value in _fields(own) if name not in left_out]
    unpaired = list(_flat(own.unpaired_reference or {}))
    tables = [table_element("The comparison", ("figure", "value#"), rows)]
    if unpaired:
        caption = "Figures that ignore pairs, for comparison only"
        tables.append(table_element(caption, ("figure", "value#"), unpaired))
    return section_element(
        "figures", "Every figure",
        element("details", element("summary", f"The comparison ({len(rows) + len(unpaired)} rows)"),
                *tables),
    )  # fmt: skip


def _files(facts: RunFacts) -> ET.Element:
    names, proof = Names(facts.evidence.inputs.run_id), facts.proof
    path = names.report("significance") if proof is None else names.proof
    command = f"tau-live bench validate {shlex.quote(path)}"
    rows = [
        (item.what, item.path, element("code", item.sha256),
         "-" if item.named is None else "yes" if item.named == item.sha256 else "no")
        for item in facts.files
    ]  # fmt: skip
    table = table_element("Files", ("file", "path", "SHA-256", "as named?"), rows)
    return section_element(
        "files", "Check it yourself",
        element("p", "Copy the folder, and run this in it. It computes every figure again from "
                "the records, and believes nothing that is written here:"),
        element("p", element("code", command)),
        element("p", "With the store that the records came from, add ",
                element("code", "--store PATH"), ": then a record that the store does not hold, "
                "and a row that was edited, are found too."),
        *_verification(facts),
        _panel(table),
    )  # fmt: skip


def _verification(facts: RunFacts) -> Iterator[ET.Element]:
    checked = facts.validation
    result = (
        "nothing is wrong" if checked.valid else f"{plural(len(checked.errors), 'fault')} found"
    )
    yield element("p", f"When this page was made, that was done without the store: {result}.")
    proof = facts.proof
    if proof is None:
        yield element("p", "There is no proof yet, so no file names the digests of the others.")
        return
    own = proof.verification
    rows: list[tuple[Child, ...]] = [
        ("checked by its writer against", own.level.replace("_", " ")),
        ("executed again by its writer", f"{own.re_executed:,}"),
        ("seals of the store", own.seal_head or "none"),
        ("digest of the proof", element("code", proof.proof_sha256)),
        ("signature", element("code", proof.proof_hmac) if proof.proof_hmac else "none"),
        ("key of the signature", proof.key_id or "none"),
    ]
    yield _panel(table_element("The proof", ("what", "value"), rows))
