"""What a request cost where its host does not say.

Few adapters need it: what is told without a cost gets one on the way to the store, by declared
prices or else by genai-prices. It is here for those that need the number at once.
"""

from tau_live.token_prices import cost_of

__all__ = ["cost_of"]
