"""Open-ended data as JSON text, which is how the store keeps it."""

from collections.abc import Mapping, Sequence
from functools import cache

import msgspec

from tau_live.errors import StoreError

_MAPPINGS = msgspec.json.Decoder(dict[str, object])  # made once: that takes as long as using it


def json_of(value: object) -> str:
    """Return open-ended data as JSON text.

    Raises:
        StoreError: JSON cannot say it.
    """
    try:
        return _encoder().encode(value).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"cannot store this as JSON: {error}") from error


@cache
def _encoder() -> msgspec.json.Encoder:
    return msgspec.json.Encoder(enc_hook=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def mapping_of(text: str) -> dict[str, object]:
    """Return the object that JSON text holds."""
    return _MAPPINGS.decode(text)


def merged(under: str, over: str) -> str:
    """Return two objects as one; where both have a key, the second one's value counts."""
    return json_of(mapping_of(under) | mapping_of(over))
