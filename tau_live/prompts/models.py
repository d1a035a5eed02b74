"""Model calls of an optimization, by pydantic-ai: each is within the budget before it is made."""

import asyncio
import errno
import re
import threading
import time
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import closing, suppress
from email.message import Message
from email.utils import parsedate_to_datetime
from functools import cache
from math import isfinite
from pathlib import Path
from socket import gaierror
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.error import HTTPError, URLError

from tau_live.core.callables import load_callable
from tau_live.core.errors import StoreUnavailableError, TauLiveError, pass_on
from tau_live.core.guard import text_of
from tau_live.prompts.budget import Prices, tokens_at_most
from tau_live.store.opening import open_at
from tau_live.store.records import Limits, OptimizationState

if TYPE_CHECKING:
    from pydantic_ai.models import Model

FUNCTION = "function/"
"""Begins a reference to a function in place of a model: ``function/package.module:callable``."""

TEST = "test/"
"""Begins a reference to pydantic-ai's model for tests."""

RETRIED_STATUS = frozenset({408, 409, 425, 429})
"""The HTTP statuses below 500 after which a call may be tried again."""

NEVER_PASS = frozenset({"ModelQuotaExceededError", "UserError"})
"""The names of errors of providers after which waiting would not help."""

MAY_PASS = frozenset(
    {
        *("APIConnectionError", "ClientConnectionError", "ConnectionError", "HTTPClientError"),
        *("MaxRetryError", "ModelAPIError", "Timeout", "TimeoutError", "TransportError"),
        "UnexpectedModelBehavior",
    }
)
"""The names of errors of providers and connections that may pass."""

UNREACHABLE = frozenset(
    {errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH}
)
"""The numbers of errors of the network that Python has no class for."""

PROVIDERS = frozenset(
    {
        *("anthropic", "azure", "botocore", "cohere", "google", "groq", "huggingface_hub"),
        *("litellm", "mistralai", "openai", "pydantic_ai", "xai_sdk"),
    }
)
"""The packages whose errors are those of a provider, also where an agent raises them."""
_KEY = re.compile(r"api.?key|credential", re.IGNORECASE)
"""Matches the errors of providers that miss their key."""

BUDGET = "budget_exhausted"
REJECTED = "provider_rejected"

ENDING = frozenset(
    {OptimizationState.CANCELLING, OptimizationState.CANCELLED, OptimizationState.COMPLETED}
)


class StoppedError(TauLiveError):
    """The run makes no more calls: it was cancelled, its budget is used up, or a call refused."""


class SurroundingsError(TauLiveError):
    """A call failed for a reason that is not the prompt's; it may be tried again.

    Attributes:
        retry_after_s: How long the provider asks to wait, in seconds; ``None`` if it does not.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Answer(NamedTuple):
    """The answer of a model.

    Attributes:
        text: Its text; empty if there was none.
        model: The model that answered.
        input_tokens: As the provider counts them; 0 if it does not.
        output_tokens: Likewise.
        usd: The cost in US dollars; ``None`` if unknown.
        started_at: Epoch seconds, UTC.
        ended_at: Likewise.
        finish_reason: Why it ended; ``None`` if unknown.
    """

    text: str
    model: str
    input_tokens: int
    output_tokens: int
    usd: float | None
    started_at: float
    ended_at: float
    finish_reason: str | None

    @property
    def tokens(self) -> int:
        """All tokens; 0 if the provider counts none."""
        return self.input_tokens + self.output_tokens


class Models:
    """The models of a run; safe to use from several threads.

    Args:
        store: The file of the store.
        run_id: The run.
        limits: Its budget.
        prices: Prices of tokens.
        timeout_s: The longest time for one call.
        key_file: The key of the store's seals; ``None`` seals without one.
    """

    def __init__(
        self,
        store: Path,
        run_id: str,
        limits: Limits,
        *,
        prices: Prices,
        timeout_s: float | None,
        key_file: Path | None = None,
    ) -> None:
        self._run_id = run_id
        self._limits = limits
        self._prices = prices
        self._timeout_s = timeout_s
        self._store = open_at(store, key_file=key_file)
        self._using = threading.Lock()

    def close(self) -> None:
        """Close the connection to the store."""
        with self._using, closing(self._store):
            pass

    def call(  # keyword-only but for one
        self, ref: str, *, system: str, user: str, seed: int, temperature: float, max_tokens: int
    ) -> Answer:
        """Ask a model once.

        Args:
            ref: ``provider/name``, ``function/package.module:callable`` or ``test/NAME``.
            system: The system prompt; empty for none.
            user: The message.
            seed: Passed on to the provider.
            temperature: Likewise.
            max_tokens: The most tokens of the answer.

        Raises:
            StoppedError: The run makes no more calls.
            SurroundingsError: It may be tried again.
        """
        tokens = tokens_at_most(system, user)
        price = self._prices.usd(ref, tokens, max_tokens)
        if price is None and self._limits.usd is not None:
            self.stop(REJECTED, f"the price of {ref} is unknown, and the budget is in US dollars")
            raise StoppedError(REJECTED)
        usd = price or 0.0
        self._reserve(tokens + max_tokens, usd)
        used, spent = tokens + max_tokens, usd  # of a call whose usage stays unknown
        try:
            answer = ask(
                ref, system=system, user=user, seed=seed, temperature=temperature,
                max_tokens=max_tokens, prices=self._prices, timeout_s=self._timeout_s,
            )  # fmt: skip
            if answer.tokens:
                used, spent = answer.tokens, answer.usd or 0.0
            return answer
        except Exception as error:
            failure = classify(error)
            if failure is None:
                raise
            used, spent = 0, 0.0
            if isinstance(failure, StoppedError):
                self.stop(REJECTED, str(failure))
            if failure is error:
                raise
            raise failure from error
        finally:
            with self._using:
                self._store.optimizations.settle(
                    self._run_id,
                    tokens=used,
                    usd=spent,
                    tokens_reserved=tokens + max_tokens,
                    usd_reserved=usd,
                )

    def stop(self, reason_code: str, error: str) -> None:
        """Let the run make no more calls, here or in another process."""
        with self._using, self._store.begin():
            if self._store.optimizations.run(self._run_id).reason_code not in {BUDGET, REJECTED}:
                self._store.optimizations.change(self._run_id, reason_code=reason_code, error=error)

    def begin_tool(self, name: str, usd: float) -> None:
        """Count a call of a tool. Raises: StoppedError."""
        with self._using:
            self._go_on()
            counted = self._store.optimizations.begin_tool(
                self._run_id, name, self._limits, usd=usd
            )
        if not counted:
            self.stop(BUDGET, f"the budget has no room for another call of the tool {name}")
            raise StoppedError(BUDGET)

    def _go_on(self) -> None:
        run = self._store.optimizations.run(self._run_id)
        if run.state in ENDING or run.reason_code in {BUDGET, REJECTED}:
            raise StoppedError(run.reason_code or str(run.state))

    def _reserve(self, tokens: int, usd: float) -> None:
        with self._using:
            self._go_on()
            reserved = self._store.optimizations.reserve(
                self._run_id, self._limits, tokens=tokens, usd=usd
            )
        if not reserved:
            self.stop(BUDGET, "the budget has no room for another model call")
            raise StoppedError(BUDGET)


def ask(  # noqa: PLR0913  # keyword-only but for one
    ref: str, *, system: str, user: str, seed: int, temperature: float, max_tokens: int,
    prices: Prices, timeout_s: float | None,
) -> Answer:  # fmt: skip
    """Ask a model once, whatever that costs; arguments as for ``Models``.

    Raises:
        Exception: Whatever the provider raises; ``classify`` says what it means.
    """
    started_at = time.time()
    settings = {"seed": seed, "temperature": temperature, "max_tokens": max_tokens}
    request = _request(ref, system, user, settings=settings, timeout_s=timeout_s)
    response = run_async(request, timeout_s=timeout_s)
    usage = response.usage
    is_known = usage.has_values()
    input_tokens = usage.input_tokens if is_known else 0
    output_tokens = usage.output_tokens if is_known else 0
    text = "".join(part.content for part in response.parts if part.part_kind == "text")
    return Answer(
        text, ref, input_tokens, output_tokens,
        prices.usd(ref, input_tokens, output_tokens) if is_known else None,
        started_at, time.time(), response.finish_reason,
    )  # fmt: skip


def classify(error: BaseException, *, by_agent: bool = False) -> TauLiveError | None:
    """Return what an error means for an item; ``None`` if it is the agent's own.

    Args:
        error: As raised by a model call, or by an agent.
        by_agent: Whether an agent raised it. Then only a provider's refusal ends the run: an agent
            may ask others than models, and a model that breaks its rules is a bad prompt's.
    """
    if isinstance(error, StoppedError | SurroundingsError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return _classify_all(error.exceptions, by_agent=by_agent)
    message = f"{type(error).__name__}: {text_of(error)}"
    if isinstance(error, StoreUnavailableError):
        return SurroundingsError(message)
    kinds = type(error).__mro__
    names = {kind.__name__ for kind in kinds}
    code = _status_of(error)
    may_pass = code in RETRIED_STATUS or code >= 500
    of_provider = not by_agent or any(kind.__module__.split(".")[0] in PROVIDERS for kind in kinds)
    if of_provider and (names & NEVER_PASS or (code >= 400 and not may_pass)):
        return StoppedError(message)
    passing = MAY_PASS - {"UnexpectedModelBehavior"} if by_agent else MAY_PASS
    is_network = names & passing and "ContentFilterError" not in names
    if may_pass or is_network or _is_unreachable(error):
        return SurroundingsError(message, _retry_after_s(error))
    return None


def _classify_all(errors: Iterable[BaseException], *, by_agent: bool) -> TauLiveError | None:
    """Return what errors mean that were raised together: one of the agent's own decides."""
    found = [classify(error, by_agent=by_agent) for error in errors]
    if None in found:
        return None
    return next((each for each in found if isinstance(each, StoppedError)), found[0])


def _status_of(error: BaseException) -> int:
    """Return the HTTP status of an error; 0 without any."""
    response = _attribute(error, "response")
    found = (
        _attribute(error, "status_code"),
        _attribute(response, "status_code"),
        error.code if isinstance(error, HTTPError) else None,
    )
    return next((status for status in found if isinstance(status, int) and status), 0)


def _is_unreachable(error: BaseException) -> bool:
    """Return whether a network or a name of a host cannot be reached."""
    if isinstance(error, URLError) and isinstance(error.reason, BaseException):
        return classify(error.reason, by_agent=True) is not None
    return isinstance(error, gaierror) or (
        isinstance(error, OSError) and error.errno in UNREACHABLE
    )


def _attribute(value: object, name: str) -> object:
    """Return an attribute of what a stranger made; ``None`` if it has none or raises."""
    try:
        return getattr(value, name, None)
    except Exception as error:  # noqa: BLE001  # a property of a stranger
        pass_on(error)
        return None


def _retry_after_s(error: BaseException) -> float | None:
    """Return how long a provider asks to wait, by its error or the response behind it."""
    for known in (error, error.__cause__):
        seconds = _seconds_of(_attribute(known, "retry_after"))
        for answer in (known, _attribute(known, "response")):
            headers = _attribute(answer, "headers")
            if seconds is None and isinstance(headers, Mapping | Message):
                seconds = _seconds_of(headers.get("retry-after"))
        if seconds is not None:
            return seconds
    return None


def _seconds_of(wanted: object) -> float | None:
    """Return the seconds of a ``Retry-After``, which may be a date; ``None`` for a past one."""
    if not isinstance(wanted, str | int | float):
        return None
    with suppress(ValueError, OverflowError):
        seconds = float(wanted)
        return seconds if isfinite(seconds) else None
    with suppress(ValueError, TypeError, OverflowError):
        left = parsedate_to_datetime(str(wanted)).timestamp() - time.time()
        return left if left > 0.0 else None
    return None


@cache
def model_of(ref: str) -> "Model":
    """Return the model of a reference.

    Raises:
        StoppedError: There is no such function, or pydantic-ai knows no such model.
    """
    from pydantic_ai.models import infer_model
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.test import TestModel

    if ref.startswith(TEST):
        return TestModel()
    try:
        if ref.startswith(FUNCTION):
            function: Any = load_callable(ref.removeprefix(FUNCTION))
            return FunctionModel(function, model_name=ref.removeprefix(FUNCTION))
        return infer_model(ref.replace("/", ":", 1))
    except Exception as error:
        raise StoppedError(f"model {ref!r} cannot be used: {error}") from error


def lacks_key(error: TauLiveError) -> bool:
    """Return whether ``model_of`` failed only because the provider's key is not there."""
    cause = error.__cause__
    return not isinstance(cause, ImportError) and bool(_KEY.search(str(cause)))


async def _request(
    ref: str, system: str, user: str, *, settings: dict[str, Any], timeout_s: float | None
) -> Any:  # noqa: ANN401  # pydantic-ai's, which is imported late
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest, SystemPromptPart, UserPromptPart

    parts = [SystemPromptPart(system)] if system else []
    if not ref.startswith((TEST, FUNCTION)):
        settings["max_retries"] = 0  # each is counted, and ours
        if timeout_s is not None:
            settings["timeout"] = timeout_s
    return await model_request(
        model_of(ref),
        [ModelRequest([*parts, UserPromptPart(user)])],
        model_settings=settings,
    )


_loop_lock = threading.Lock()
_loops: list[asyncio.AbstractEventLoop] = []


def run_async(coroutine: Coroutine[Any, Any, Any], *, timeout_s: float | None) -> Any:  # noqa: ANN401
    """Run a coroutine in the one event loop of the process's model calls, and return its result.

    Providers' clients belong to a loop, and are shared by all threads.

    Raises:
        TimeoutError: It took longer than ``timeout_s``; it is cancelled.
    """
    with _loop_lock:
        if not _loops or _loops[0].is_closed():
            loop = asyncio.new_event_loop()
            threading.Thread(
                target=loop.run_forever, name="tau-live-model-calls", daemon=True
            ).start()
            _loops[:] = [loop]
    future = asyncio.run_coroutine_threadsafe(coroutine, _loops[0])
    try:
        return future.result(timeout_s)
    finally:
        future.cancel()
