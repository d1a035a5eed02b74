"""The demo's models: rules that are read, rules that are found, and mistakes."""

import asyncio
import json
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from tau_live.prompts import demo
from tau_live.prompts.demo import PROMPT, RULES, critique, edit, rules_in, triage
from tau_live.prompts.tickets import Rule, reply, rewritten

SEEDS = range(20)
RULE_TEXTS = (
    'If a ticket says "charged twice", queue is refunds.',
    'Set priority to urgent whenever it says "whole team".',
    'Write the amount as in "24.50 EUR".',
)

TWICE = """\
Ticket 1 from Ada
Company: Acme
Plan: team
Channel: mail

I was charged twice this month. The whole team is waiting. It is about €24.5 in total."""


class Task(NamedTuple):
    prompt: str
    expected: str


def tasks(name: str, seed: int = 0) -> list[Task]:
    rows = demo.config(seed)[name]
    assert isinstance(rows, list)
    return [Task(**row) for row in rows]


def score(prompt: str, rows: Sequence[Task]) -> float:
    return sum(triage(prompt, row.prompt) == row.expected for row in rows) / len(rows)


def message(prompt: str, rows: Sequence[Task]) -> str:
    examples = [
        {"input": {"prompt": row.prompt}, "expected": row.expected, "output": output, "score": 0.0}
        for row in rows
        if (output := triage(prompt, row.prompt)) != row.expected
    ]
    return f"Examples:\n<<<\n{json.dumps(examples)}\n>>>\n"


def edited(prompt: str, critique: str, seed: int) -> str:
    return edit(f"<<<\n{json.dumps(prompt)}\n>>>\n<<<\n{json.dumps(critique)}\n>>>", seed=seed)


def test_without_its_rules_the_house_s_answers_are_missed() -> None:
    answer = triage(PROMPT, TWICE)

    assert answer == "queue=billing; priority=normal; amount=€24.5"
    assert reply(TWICE, RULES) == "queue=refunds; priority=urgent; amount=24.50 EUR"
    assert 0.2 < score(PROMPT, tasks("test")) < 0.5


def test_with_its_rules_every_answer_is_right() -> None:
    prompt = "\n".join([PROMPT, *RULE_TEXTS])

    assert tuple(rules_in(prompt)) == RULES
    assert score(prompt, tasks("test")) == 1.0


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Customers who were charged twice belong to refunds.", RULES[0]),
        ("Route anything about “charged twice” to refunds, not to billing!", RULES[0]),
        ("Whenever the whole team is concerned, the priority must be urgent", RULES[1]),
        ('Treat tickets saying "whole team" as urgent instead of normal.', RULES[1]),
        ("Amounts are written like “10.00 EUR”.", RULES[2]),
        ('Format every amount of money like "5.25 EUR"; never with a sign.', RULES[2]),
    ],
)
def test_a_paraphrase_counts(text: str, rule: Rule) -> None:
    alone = reply(TWICE, [rule])

    assert triage(f"{PROMPT} {text}", TWICE) == alone


@pytest.mark.parametrize(
    "text",
    [
        "The queues are refunds and legal.",
        "It is not urgent.",
        "In general, be polite.",
        'If a ticket says "charged thrice", queue is refunds.',
        'Answer like "this".',
    ],
)
def test_what_is_no_rule_for_the_ticket_changes_nothing(text: str) -> None:
    assert triage(f"{PROMPT}\n{text}", TWICE) == triage(PROMPT, TWICE)


def test_a_rule_without_its_condition_holds_for_all_and_the_last_one_wins() -> None:
    answer = triage(f'{PROMPT}\n{RULE_TEXTS[0]}\nSet queue to legal. Say "no" to nobody.', TWICE)

    assert answer == "queue=legal; priority=normal; amount=€24.5"


def test_a_prompt_that_forgets_the_form_of_the_answer_gets_prose() -> None:
    assert (
        triage("Triage tickets.", TWICE) == "This looks like a billing ticket of normal priority."
    )


@pytest.mark.parametrize(
    ("amount", "like", "text"),
    [
        ("€24.5", "1.00 EUR", "24.50 EUR"),
        ("$7", "10.00 EUR", "7.00 USD"),
        ("318.3 dollars", "€1", "$318"),
        ("EUR 9.25", "3.5 euros", "9.2 euros"),
    ],
)
def test_an_amount_is_written_like_the_example(amount: str, like: str, text: str) -> None:
    assert rewritten(amount, like=like) == text


def test_what_is_no_amount_cannot_be_written_like_one() -> None:
    with pytest.raises(ValueError, match="expected amounts of money, got 'none' and '1 EUR'"):
        rewritten("none", like="1 EUR")


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_critic_and_editor_find_a_missing_rule_for_most_seeds(missing: int) -> None:
    prompt = "\n".join([PROMPT, *RULE_TEXTS[:missing], *RULE_TEXTS[missing + 1 :]])
    text = message(prompt, tasks("optimize")[:20])
    held_out = tasks("validate")

    scores = [score(edited(prompt, critique(text, seed=n), n), held_out) for n in SEEDS]

    assert sum(found == 1.0 for found in scores) > len(SEEDS) / 2
    assert min(scores) < score(prompt, held_out)  # and some edits do harm


def test_the_critic_knows_no_more_than_its_examples() -> None:
    other = [task._replace(expected=reply(task.prompt, [Rule("priority", "low", ("chat",))]))
             for task in tasks("optimize")]  # fmt: skip

    remarks = [critique(message(PROMPT, other), seed=n) for n in SEEDS]

    assert sum('priority=low was expected say "channel chat"' in each for each in remarks) > 10
    assert critique(message(PROMPT, []), seed=0) == "Every example is right."


def test_an_object_a_line_is_read_like_an_array() -> None:
    array = message(PROMPT, tasks("optimize"))
    records = json.loads(array.split("\n")[2])
    lines = "\n\n".join(f"# Example\n{json.dumps(record)}" for record in records)

    assert "whole team" in critique(f"<<<\n{lines}\n>>>", seed=1)


def test_a_rule_about_the_same_tickets_is_replaced() -> None:
    prompt = f'{PROMPT}\nIf a ticket says "charged twice", queue is legal.'
    remark = '9 of 9 where queue=refunds was expected say "charged twice"; the answer was legal.'

    prompts = [edited(prompt, remark, n) for n in SEEDS]

    assert sum("queue is legal" not in each and RULES[0] in rules_in(each) for each in prompts) > 10


def test_the_same_texts_and_seed_give_the_same_answers() -> None:
    text = message(PROMPT, tasks("optimize"))
    remark = critique(text, seed=7)

    assert demo.config(3) == demo.config(3) != demo.config(4)
    assert critique(text, seed=7) == remark
    assert edited(PROMPT, remark, 7) == edited(PROMPT, remark, 7)
    assert len({edited(PROMPT, remark, n) for n in SEEDS}) > 3


def test_no_task_is_in_two_sets() -> None:
    rows = [row.prompt for name in ("optimize", "validate", "test") for row in tasks(name)]

    assert len(set(rows)) == len(rows)


@pytest.mark.slow  # it imports pydantic-ai
def test_pydantic_ai_runs_the_three_models_and_counts_their_tokens() -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest, SystemPromptPart, UserPromptPart
    from pydantic_ai.models.function import FunctionModel

    async def answer(function: object, system: str, user: str) -> tuple[str, int, int]:
        parts = [SystemPromptPart(system), UserPromptPart(user)]
        response = await model_request(
            FunctionModel(function), [ModelRequest(parts)], model_settings={"seed": 7}
        )
        return response.text, response.usage.input_tokens, response.usage.output_tokens

    text = message(PROMPT, tasks("optimize"))
    remark = critique(text, seed=7)
    blocks = f"<<<\n{json.dumps(PROMPT)}\n>>>\n<<<\n{json.dumps(remark)}\n>>>"

    triaged = asyncio.run(answer(demo.task_model, PROMPT, TWICE))
    criticized = asyncio.run(answer(demo.critic_model, "You are a critic.", text))
    written = asyncio.run(answer(demo.editor_model, "You are an editor.", blocks))

    line = triage(PROMPT, TWICE)
    sent = len((PROMPT + TWICE).encode())
    assert triaged == (line, -(-sent // 4), -(-len(line.encode()) // 4))
    assert criticized[0] == remark
    assert written[0] == edited(PROMPT, remark, 7)
