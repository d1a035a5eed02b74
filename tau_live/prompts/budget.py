"""The most that an optimization takes, before its first call, and its limits."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from tau_live.core.errors import ConfigError
from tau_live.core.prices import cost_of
from tau_live.core.prompts import canonical_json
from tau_live.core.records import RolloutMode
from tau_live.core.settings.tables import DeclaredPrice
from tau_live.prompts.rows import Row
from tau_live.store.records import Limits

if TYPE_CHECKING:
    from tau_live.prompts.config import OptimizationConfig

EXTRA_TOKENS = 1_000
"""The most tokens of a template's own words, and of the marks around data."""


def tokens_at_most(*texts: str) -> int:
    """Return the most tokens that texts are taken to have: one for three bytes of UTF-8."""
    return ceil(sum(len(text.encode()) for text in texts) / 3)


class Prices(NamedTuple):
    """Prices of tokens.

    Attributes:
        declared: Those of the settings.
        known: Whether others are looked up in genai-prices.
    """

    declared: Sequence[DeclaredPrice] = ()
    known: bool = True

    def usd(self, ref: str, input_tokens: int, output_tokens: int) -> float | None:
        """Return the price of tokens of ``provider/name``; ``None`` if it is unknown."""
        provider, _, name = ref.partition("/")
        usage = {"input_tokens": float(input_tokens), "output_tokens": float(output_tokens)}
        return cost_of(usage, model=name, prices=self.declared, provider=provider, known=self.known)


class Preflight(NamedTuple):
    """The most that a run takes.

    Attributes:
        candidates: Prompts that are proposed.
        search_items: Items on rows of ``optimize``, those of the first prompts too.
        confirm_items: Items on rows of ``validate``.
        test_items: Items on rows of ``test``.
        search_calls: Calls of critic and editor.
        policy_items: Items on rows of ``optimize`` whose prompt a policy chooses.
        calls: All model calls, each tried as often as allowed; ``None`` with an agent, whose calls
            are its own.
        tokens: All tokens; ``None`` likewise.
        usd: All of it in US dollars; ``None`` likewise, and where a price is unknown.
    """

    candidates: int
    search_items: int
    confirm_items: int
    test_items: int
    search_calls: int
    policy_items: int
    calls: int | None
    tokens: int | None
    usd: float | None

    @property
    def items(self) -> int:
        """All items."""
        return self.search_items + self.policy_items + self.confirm_items + self.test_items


def preflight(
    config: "OptimizationConfig",
    rows: Mapping[RolloutMode, Sequence[Row]],
    *,
    incumbent: str,
    prices: Prices,
) -> Preflight:
    """Return what a run takes at most.

    Args:
        config: Its config.
        rows: Its rows.
        incumbent: The text of the prompt in force.
        prices: Prices of tokens.
    """
    from tau_live.prompts.config import policy_phase  # which needs pydantic

    search, repeats = config.search, config.repeats
    train = len(rows[RolloutMode.TRAIN])
    screened = min(search.screen_rows or train, train)
    first = 1 + len(search.initial_prompts)
    candidates, pool, leaving_out = 0, first, 0
    block = policy_phase(config)
    if search.algorithm == "beam":
        for _ in range(search.rounds):
            new = min(search.beam_width, pool) * search.candidates_per_parent
            candidates, pool = candidates + new, pool + new
    elif search.algorithm == "reflective":
        leaving_out = search.shorten
        candidates = search.iterations + leaving_out
    finalists = min(config.adoption.finalists, first - 1 + candidates)
    counts = Preflight(
        candidates=candidates,
        search_items=(first + candidates) * screened * repeats,
        confirm_items=(1 + finalists) * len(rows[RolloutMode.VAL]) * repeats,
        test_items=2 * len(rows[RolloutMode.TEST]) * repeats if finalists else 0,
        search_calls=2 * (candidates - leaving_out),
        policy_items=0 if block is None or not train else block.rollouts or train,
        calls=None,
        tokens=None,
        usd=None,
    )
    if config.agent is not None:
        return counts
    kinds = _kinds_of_calls(config, rows, incumbent, counts)
    costs = [(n, prices.usd(kind.ref, kind.input, kind.output)) for n, kind in kinds]
    known = [n * usd for n, usd in costs if usd is not None]
    return counts._replace(
        calls=sum(n for n, _ in kinds),
        tokens=sum(n * (kind.input + kind.output) for n, kind in kinds),
        usd=sum(known) if len(known) == len(costs) else None,
    )


class _Kind(NamedTuple):
    """Calls of one kind: the model, and the most tokens of each."""

    ref: str
    input: int
    output: int


def _kinds_of_calls(
    config: "OptimizationConfig",
    rows: Mapping[RolloutMode, Sequence[Row]],
    incumbent: str,
    counts: Preflight,
) -> list[tuple[int, _Kind]]:
    """Return the calls that a run makes at most, by kind."""
    search = config.search
    items = counts.items
    first = (incumbent, *search.initial_prompts.values())
    longest = search.max_prompt_chars if counts.candidates else 0
    prompt = max(longest, *map(tokens_at_most, first))
    row = max(
        (
            tokens_at_most(canonical_json(row.input).decode())
            for own in rows.values()
            for row in own
        ),
        default=0,
    )
    answer = config.max_output_tokens
    kinds = [
        (items * config.max_attempts, _Kind(config.model or "", prompt + row, answer)),
        *(
            (
                items * config.max_attempts * 2,
                _Kind(scorer.model or "", EXTRA_TOKENS + 2 * row + answer, search.max_tokens),
            )
            for scorer in config.scorers
            if scorer.name == "judge"
        ),
    ]
    if counts.search_calls:
        calls = counts.search_calls // 2 * config.max_attempts
        examples = search.examples_per_critique * (2 * row + answer)
        critic = _Kind(
            search.critic_model or "", EXTRA_TOKENS + prompt + examples, search.max_tokens
        )
        editor = _Kind(
            search.editor_model or "", EXTRA_TOKENS + prompt + search.max_tokens, search.max_tokens
        )
        kinds += [(calls, critic), (calls, editor)]
    return kinds


def limits_of(config: "OptimizationConfig", before: Preflight) -> Limits:
    """Return the limits of a run; the default of its calls is what it takes at most."""
    budget = config.budget
    return Limits(
        calls=budget.calls or before.calls,
        rollouts=budget.rollouts,
        tokens=budget.tokens,
        usd=budget.usd,
        tools={name: ceiling.model_dump() for name, ceiling in budget.tools.items()},
    )


def check_prices(config: "OptimizationConfig", prices: Prices, *, path: str) -> None:
    """Check that every model of a run with a budget in US dollars has a price.

    Raises:
        ConfigError: One has none.
    """
    if config.budget.usd is None:
        return
    search = config.search
    judges = (scorer.model for scorer in config.scorers)
    used = (config.model, search.critic_model, search.editor_model, *judges)
    unknown = sorted({ref for ref in used if ref is not None and prices.usd(ref, 1, 1) is None})
    if unknown:
        raise ConfigError(
            [
                f"{path}: /budget/usd: the price of {ref} is unknown: leave the budget out, or "
                "declare it in pyproject.toml, in US dollars per million tokens: "
                f'[tool.tau-live.prices."{ref.partition("/")[2]}"] with `input = ` and `output = `'
                for ref in unknown
            ]
        )
