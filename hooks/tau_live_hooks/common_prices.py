"""What a request cost where its host does not say: by genai-prices, where that is installed."""

from collections.abc import Mapping
from contextlib import suppress


def cost_of(
    usage: Mapping[str, float], *, model: str | None, provider: str | None = None
) -> float | None:
    """Return what these tokens cost in US dollars; ``None`` where nobody knows.

    Args:
        usage: Tokens by kind: ``input_tokens`` and ``output_tokens``, and of the former
            ``cache_read_tokens`` and ``cache_write_tokens``.
        model: The model that answered.
        provider: Who runs it, as the price table names it: ``openai``.
    """
    if not model:
        return None
    kinds = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    tokens = {kind: int(usage[kind]) for kind in kinds if usage.get(kind)}
    with suppress(ImportError, LookupError, ValueError):
        from genai_prices import Usage, calc_price

        price = calc_price(Usage(**tokens), model.rpartition(":")[2], provider_id=provider)
        return float(price.total_price)
    return None
