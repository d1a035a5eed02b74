"""Support tickets, made by seed, and the rules of a house by which they are triaged.

A reply is one line: ``queue=billing; priority=normal; amount=none``. Without rules it is what a
reader would guess from the ticket; the rules of a house differ from that, and no ticket tells them.
"""

import random
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

QUEUES = ("billing", "technical", "general", "refunds", "legal", "sales")
PRIORITIES = ("low", "normal", "high", "urgent")
FIELDS = ("queue", "priority", "amount")

PROBLEMS: Mapping[str, Sequence[str]] = {
    "charged twice": (
        "I was charged twice this month.",
        "Our card got charged twice yesterday.",
        "We have been charged twice for one seat.",
    ),
    "wrong address": (
        "The invoice shows the wrong address.",
        "There is a wrong address on every invoice.",
        "You printed the wrong address on our invoice.",
    ),
    "cancel our subscription": (
        "Please cancel our subscription.",
        "How do I cancel our subscription?",
        "We want to cancel our subscription at the end of the year.",
    ),
    "cannot log in": (
        "I cannot log in.",
        "Some colleagues cannot log in with their password.",
        "My manager cannot log in on the new laptop.",
    ),
    "export fails": (
        "The export fails halfway.",
        "Every night the export fails.",
        "An export fails as soon as I start it.",
    ),
    "blank page": (
        "After a click I see a blank page.",
        "The settings show a blank page.",
        "All I get is a blank page and an error.",
    ),
    "delete my data": (
        "Please delete my data.",
        "I ask you to delete my data from every server.",
        "Could you delete my data and tell me when it is gone?",
    ),
    "signed contract": (
        "We wait for the signed contract.",
        "Where do I send the signed contract?",
        "A signed contract is still missing.",
    ),
    "more seats": (
        "We need more seats.",
        "Can I add more seats myself?",
        "Next quarter we want more seats.",
    ),
}
"""What tickets are about: a phrase that all wordings share, and the wordings."""

CIRCUMSTANCES: Mapping[str, Sequence[str]] = {
    "whole team": (
        "The whole team is waiting.",
        "This stops the whole team.",
        "It concerns the whole team.",
    ),
    "board meeting": (
        "There is a board meeting tomorrow.",
        "I need it for a board meeting.",
        "We were reminded at the board meeting.",
    ),
    "no hurry": (
        "There is no hurry.",
        "No hurry from our side.",
        "I am in no hurry with this.",
    ),
    "second time": (
        "I write for the second time.",
        "This is the second time I ask.",
        "It happens for the second time.",
    ),
    "last update": (
        "It began with the last update.",
        "Before the last update all was well.",
        "Perhaps it is the last update.",
    ),
    "press release": (
        "We plan a press release about it.",
        "Our press release depends on that.",
        "It was mentioned in a press release.",
    ),
}
"""What goes with it, likewise."""

COMPANIES = ("Acme", "Globex", "Hooli", "Initech", "Umbrella", "Vandelay")
PLANS = ("free", "team", "enterprise")
CHANNELS = ("mail", "chat", "phone")
CLOSINGS = ("Thank you.", "Kind regards.", "Please help.", "Thanks in advance.")
NAMES = ("Ada", "Bruno", "Chen", "Dana", "Emil", "Farah", "Goran", "Hana")

FREQUENCY = 3.0
"""How much more often a frequent phrase is drawn than another."""

AMOUNT_SHARE = 0.3
"""The share of the tickets that name an amount of money."""

CURRENCIES = {"EUR": ("EUR", "€", "euros"), "USD": ("USD", "$", "dollars")}
NUMBER = re.compile(r"\d+(?:\.\d+)?")
UNIT = re.compile(r"EUR|€|euros|USD|\$|dollars")
MONEY = re.compile(rf"(?:{UNIT.pattern}) ?{NUMBER.pattern}|{NUMBER.pattern} ?(?:{UNIT.pattern})")

GUESSES = {
    "billing": frozenset({"charged", "invoice", "subscription", "payment"}),
    "technical": frozenset({"log", "password", "export", "error", "blank"}),
}
"""The queue that a reader takes for the right one, by words."""


class Rule(NamedTuple):
    """A rule of triage.

    Attributes:
        field: ``queue``, ``priority`` or ``amount``.
        value: The value of the field; of ``amount`` an example of how it is written.
        cues: Phrases that a ticket must all say for the rule to hold; none: it holds for all.
    """

    field: str
    value: str
    cues: tuple[str, ...] = ()


def words_of(text: str) -> list[str]:
    """Return the words of a text, in lower case."""
    return re.findall(r"[a-z0-9]+", text.lower())


def says(text: str, phrase: str) -> bool:
    """Say whether a text has the words of a phrase, one after the other."""
    return f" {' '.join(words_of(phrase))} " in f" {' '.join(words_of(text))} "


def ticket(rng: random.Random, number: int, frequent: Collection[str] = ()) -> str:
    """Return a ticket.

    Args:
        rng: Draws what it says.
        number: Of the ticket; it makes the text unique.
        frequent: Phrases of problems and circumstances that are drawn more often.
    """
    body = [_draw(rng, PROBLEMS, frequent), _draw(rng, CIRCUMSTANCES, frequent)]
    if rng.random() < AMOUNT_SHARE:
        body.append(f"It is about {_amount(rng)} in total.")
    body.append(rng.choice(CLOSINGS))
    return (
        f"Ticket {number} from {rng.choice(NAMES)}\nCompany: {rng.choice(COMPANIES)}\n"
        f"Plan: {rng.choice(PLANS)}\nChannel: {rng.choice(CHANNELS)}\n\n{' '.join(body)}"
    )


def reply(ticket: str, rules: Sequence[Rule] = ()) -> str:
    """Return the line for a ticket; of rules that contradict each other the last one holds."""
    fields = guess(ticket)
    amount = fields["amount"]
    for rule in rules:
        if not all(says(ticket, cue) for cue in rule.cues):
            continue
        if rule.field != "amount":
            fields[rule.field] = rule.value
        elif amount != "none":
            fields["amount"] = rewritten(amount, like=rule.value)
    return "; ".join(f"{name}={fields[name]}" for name in FIELDS)


def guess(ticket: str) -> dict[str, str]:
    """Return the fields as somebody would guess who knows no rule."""
    words = set(words_of(ticket))
    queues = [queue for queue, known in GUESSES.items() if words & known]
    money = MONEY.search(ticket)
    return {
        "queue": queues[0] if queues else "general",
        "priority": "normal",
        "amount": money.group() if money else "none",
    }


def rewritten(amount: str, *, like: str) -> str:
    """Return an amount of money, written like another.

    Raises:
        ValueError: One of them is no amount.
    """
    number, unit, pattern = NUMBER.search(amount), UNIT.search(amount), UNIT.search(like)
    if number is None or unit is None or pattern is None or not MONEY.fullmatch(like):
        raise ValueError(f"expected amounts of money, got {amount!r} and {like!r}")
    units = next(units for units in CURRENCIES.values() if unit.group() in units)
    styles = next(units for units in CURRENCIES.values() if pattern.group() in units)
    places = len("".join(re.findall(r"\.(\d+)", like)))
    text = NUMBER.sub(f"{float(number.group()):.{places}f}", like)
    return text.replace(pattern.group(), units[styles.index(pattern.group())])


def _draw(
    rng: random.Random, phrases: Mapping[str, Sequence[str]], frequent: Collection[str]
) -> str:
    weights = [FREQUENCY if phrase in frequent else 1.0 for phrase in phrases]
    return rng.choice(phrases[rng.choices(list(phrases), weights)[0]])


def _amount(rng: random.Random) -> str:
    number = rng.choice((f"{rng.randrange(10, 400)}", f"{rng.randrange(100, 4000) / 10}"))
    code, symbol, name = rng.choice(list(CURRENCIES.values()))
    return rng.choice((f"{symbol}{number}", f"{number} {name}", f"{code} {number}"))
