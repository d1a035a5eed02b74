"""Costs of model requests whose host reports none: from declared prices, or from genai-prices.

An adapter reports tokens and the model's name, and no prices: the cost of an answer and of its run
is added on the way to the store, off the host's thread, before it is recorded.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import isfinite
from typing import NamedTuple

from msgspec.structs import replace

from tau_live.core.events import Event, ModelEnd, ModelStart, RunEnd
from tau_live.core.settings.tables import DeclaredPrice

MILLION = 1e6
RUNS_REMEMBERED = 10_000
UNPRICED_REMEMBERED = 1_000

_unpriced: set[tuple[str, str | None]] = set()
"""Models that genai-prices does not know, each with the provider of the request."""

_INPUT = ("input_tokens", "prompt_tokens", "input", "in")
_OUTPUT = ("output_tokens", "completion_tokens", "output", "out")
_READ = (
    *("cache_read_tokens", "cached_tokens", "cached_input_tokens", "cache_read"),
    *("cache_read.input_tokens", "input_tokens_details.cached_tokens"),
    *("prompt_tokens_details.cached_tokens", "cached"),
)
_WRITTEN = ("cache_write_tokens", "cache_write", "cache_creation.input_tokens")
_READ_APART = ("cache_read_input_tokens",)
_WRITTEN_APART = ("cache_creation_input_tokens",)
"""As Anthropic counts them: in addition to the input tokens, not among them."""


class Tokens(NamedTuple):
    """The number of tokens of a request.

    Attributes:
        input: Input tokens, cached ones included.
        output: Output tokens.
        read: Input tokens that were read from a cache.
        written: Input tokens that were written to a cache.
    """

    input: float
    output: float
    read: float
    written: float


def cost_of(
    usage: Mapping[str, float],
    *,
    model: str | None,
    prices: Sequence[DeclaredPrice] = (),
    provider: str | None = None,
    known: bool = True,
) -> float | None:
    """Return the cost of tokens in US dollars; ``None`` if unknown.

    Of several declared prices that match, the one with the longest name counts.

    Args:
        usage: Tokens by kind, under the names that OpenAI, Anthropic, OpenTelemetry or pydantic-ai
            give them.
        model: The model that answered; declared prices may leave out a prefix before ``:`` or
            ``/``.
        prices: The declared prices.
        provider: The provider, as genai-prices names it: ``openai``.
        known: Whether a model without a declared price is looked up in genai-prices, where that
            is installed.
    """
    tokens = tokens_of(usage)
    if model is None or tokens is None:
        return None
    names = list(_names(model))
    fitting = [price for price in prices if price.fits(names)]
    if fitting:
        return _at(max(fitting, key=lambda price: len(price.model)), tokens)
    return _look_up(names, tokens, provider) if known else None


def tokens_of(usage: Mapping[str, float]) -> Tokens | None:
    """Return the tokens to be priced; ``None`` if none were counted."""
    counts = {name.lower(): n for name, n in usage.items() if isfinite(n) and n >= 0}
    input_, output = _first(counts, _INPUT), _first(counts, _OUTPUT)
    apart_read, apart_written = _first(counts, _READ_APART), _first(counts, _WRITTEN_APART)
    if not input_ + output + apart_read + apart_written:
        return None
    read = _first(counts, _READ) or apart_read
    written = _first(counts, _WRITTEN) or apart_written
    if not _first(counts, _READ) and not _first(counts, _WRITTEN):
        input_ += apart_read + apart_written
    return Tokens(max(input_, read + written), output, read, written)


class Pricer:
    """Adds costs to the events of answers and runs whose host did not.

    Args:
        prices: The declared prices.
        known: Whether other prices are looked up.
    """

    def __init__(self, prices: Sequence[DeclaredPrice], *, known: bool) -> None:
        self._prices = prices
        self._known = known
        self._runs: OrderedDict[tuple[str, str, str], _Run] = OrderedDict()

    def with_cost(self, event: Event) -> Event:
        """Return an event with its cost, if that is known; call it in the order of the events."""
        match event:
            case ModelStart():
                run = self._run_of(event)
                run.model, run.provider = event.model_requested, event.provider
            case ModelEnd():
                return self._price_answer(event)
            case RunEnd():
                run = self._runs.pop(_key(event), _Run())
                if event.cost_usd is None and run.costs and not run.unknown:
                    return replace(event, cost_usd=sum(run.costs))
        return event

    def _price_answer(self, event: ModelEnd) -> ModelEnd:
        run, cost = self._run_of(event), event.cost_usd
        if cost is None and event.usage:
            cost = cost_of(
                event.usage,
                model=event.model_used or run.model,
                prices=self._prices,
                provider=run.provider,
                known=self._known,
            )
            event = event if cost is None else replace(event, cost_usd=cost)
        if cost is not None:
            run.costs.append(cost)
        elif event.usage:
            run.unknown = True
        return event

    def _run_of(self, event: Event) -> "_Run":
        run = self._runs.setdefault(_key(event), _Run())
        if len(self._runs) > RUNS_REMEMBERED:
            self._runs.popitem(last=False)
        return run


@dataclass(slots=True)
class _Run:
    """The costs so far of an open run."""

    costs: list[float] = field(default_factory=list)
    unknown: bool = False
    model: str | None = None
    provider: str | None = None


def _key(event: Event) -> tuple[str, str, str]:
    return event.host, event.run_id, event.execution


def _names(model: str) -> Iterator[str]:
    """Yield the names under which a model may be declared: ``openai:gpt-5`` is ``gpt-5`` too."""
    yield model
    for sign in (":", "/"):
        _, separator, rest = model.partition(sign)
        if separator and rest:
            yield rest
            yield rest.rpartition("/")[2]


def _at(price: DeclaredPrice, tokens: Tokens) -> float:
    input_, output = price.input or 0.0, price.output or 0.0
    read = input_ if price.cached is None else price.cached
    written = input_ if price.cache_write is None else price.cache_write
    fresh = tokens.input - tokens.read - tokens.written
    dollars = fresh * input_ + tokens.read * read + tokens.written * written
    return (dollars + tokens.output * output) / MILLION


def _look_up(names: Sequence[str], tokens: Tokens, provider: str | None) -> float | None:
    if not _has_price_table():
        return None
    from genai_prices import Usage, calc_price

    usage = Usage(
        input_tokens=int(tokens.input),
        output_tokens=int(tokens.output),
        cache_read_tokens=int(tokens.read),
        cache_write_tokens=int(tokens.written),
    )
    for at in dict.fromkeys((provider, None)):
        for name in names:
            if (name, at) in _unpriced:
                continue
            try:
                return float(calc_price(usage, name, provider_id=at).total_price)
            except LookupError:  # searching all providers in vain takes half a millisecond
                if len(_unpriced) < UNPRICED_REMEMBERED:
                    _unpriced.add((name, at))
            except Exception:  # noqa: BLE001, S112  # a border to other people's code
                continue
    return None


@cache
def _has_price_table() -> bool:
    """Return whether genai-prices can be imported; cached, as a search in vain takes 3 ms."""
    try:
        from genai_prices import Usage, calc_price  # noqa: F401  # as it is used above
    except Exception:  # noqa: BLE001  # it is not installed, or fails to import
        return False
    return True


def _first(counts: Mapping[str, float], names: Sequence[str]) -> float:
    return next((counts[name] for name in names if counts.get(name)), 0.0)
