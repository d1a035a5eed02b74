"""One prompt or chain of llm as it is told to the runtime; nothing here imports the host.

A run is found again by the response that it belongs to, as long as its host keeps that.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from tau_live import door
from tau_live import events as ev
from tau_live.adapters import InForce
from tau_live.errors import suppress
from tau_live.gate import Kind
from tau_live.runs.handles import RunHandle
from tau_live.runtime import Runtime
from tau_live_hooks import llm_events as said
from tau_live_hooks.common_border import tell
from tau_live_hooks.common_run import RunBook
from tau_live_hooks.common_text import content_of, few, printed
from tau_live_hooks.llm_choices import RoutedChoices

if TYPE_CHECKING:
    from contextvars import Token

HOST = "llm"
PAUSES_REMEMBERED = 1_000


class _State:
    """The runs of this process, by response, and which of them wait, by the call they wait in."""

    runs: ClassVar[WeakKeyDictionary[Any, "HostRun"]] = WeakKeyDictionary()
    paused: ClassVar[OrderedDict[tuple[str, str], str]] = OrderedDict()
    lock = Lock()


class HostRun:
    """A prompt or chain, each time that it is run.

    Args:
        in_force: Returns the running system.
        kind: ``prompt`` or ``chain``.
        source: What it belongs to: the response, or the chain.
    """

    def __init__(self, in_force: InForce, kind: str, source: Any) -> None:
        self._in_force = in_force
        self._kind = kind
        self._prompt = source.prompt
        self._model = source.model
        self._session = getattr(source.conversation, "id", None)
        self._limit = getattr(source, "chain_limit", None)
        self._asked: Counter[str] = Counter()
        self._key: str | None = None
        self._heard = 0
        self._output: str | None = None
        self.book: RunBook | None = None
        self.choices: RoutedChoices | None = None

    @property
    def is_chain(self) -> bool:
        """Whether more than one response may belong to it."""
        return self._kind == "chain"

    @property
    def handle(self) -> RunHandle | None:
        """The run that goes on or has ended; ``None`` if none was begun."""
        return None if self.book is None else self.book.handle

    def known(self) -> dict[str, object]:
        """Return what is known of the run before something is chosen."""
        turn = None if self.book is None else self.book.turn
        return {
            "model": said.model_name(self._model) or "",
            "kind": self._kind,
            "step": turn or 0,
        }

    def begin(self, key: str, *, pending: Sequence[Any] = ()) -> RunBook | None:
        """Return what is told of the run; begun if it was not, or again if it had ended.

        Args:
            key: The host's id of it, if it is begun for the first time.
            pending: The calls of tools that were left when it was stopped before.
        """
        runtime = self._in_force()
        if runtime is None:
            return None
        going = self.book
        if going is not None and going.runtime is runtime and not going.handle.ended:
            return going
        resumed = _resumed(pending)
        self._key = self._key or (resumed[0] if resumed else key)
        outer = door.current()
        inside = outer.handle if outer is not None else None
        self.book = self._begun(runtime, inside, resumed, is_resumed=bool(pending))
        return self.book

    def _begun(
        self,
        runtime: Runtime,
        inside: RunHandle | None,
        resumed: tuple[str, str] | None,
        *,
        is_resumed: bool,
    ) -> RunBook:
        nested = inside is not None and inside.host == HOST
        trigger = "resume" if is_resumed else "tool" if nested else "user"
        given = {} if resumed is None else {"resumed": {"resume_key": resumed[1]}}
        handle = runtime.begin_run(
            self._kind,
            key=self._key,
            session=self._session,
            metadata=None,
            parent=inside,
            host=HOST,
            told={**said.start_of(self._prompt, self._model), "trigger": trigger},
            **given,
        )
        book = RunBook(runtime, handle)
        self.choices = RoutedChoices(runtime, handle) if runtime.settings.act else None
        self._heard = said.new_of(self._prompt.messages)
        return book

    def undecided(self, error: Exception) -> None:
        """Count and log what failed when its model was to be chosen."""
        with suppress(Exception):
            if self.book is not None:
                tell(self.book.runtime, Kind.DECISION, error)

    def ask(self, response: Any) -> str:
        """Tell that a response asks its model; return the id of that step."""
        book = self._told()
        self._asked[response.id] += 1
        again = self._asked[response.id]
        span_id = printed(response.id) + (f"#{again}" if again > 1 else "")
        messages = response.prompt.messages
        book.begin_turn()
        self._listen(messages)
        book.asked(span_id, said.request_of(response, messages))
        return span_id

    def answer(self, response: Any, span_id: str) -> None:
        """Tell that its model has answered; a prompt is over with that."""
        usage = said.usage_of(response)
        self._told().answered(span_id, said.answer_of(response), usage=usage)
        self._output = said.text_of(response)
        if not self.is_chain:
            self.end(None)

    def refuse(self, span_id: str, error: BaseException) -> None:
        """Tell that its model did not answer; that ends the run, unless nobody reads on."""
        self._told().refused(span_id, error)
        is_closed = isinstance(error, GeneratorExit)
        if not (self.is_chain and is_closed):  # a chain itself is told when nobody reads on
            self.end(error)

    def end(self, error: BaseException | None) -> None:
        """Tell that the run is over."""
        if self.book is None or self.book.handle.ended:
            return
        found: dict[str, object] = {}
        if error is None:
            self._say()
            found["output"] = content_of(self._output)
        elif self._is_limit(error):
            found |= {"status": ev.Status.LIMIT, "reason": ev.Reason.LIMIT}
        self.book.end(error, found)

    def pause(self, error: Any) -> None:
        """Tell that a chain waits for somebody, in one of its tools."""
        call = error.tool_call
        if self.book is None or self.book.handle.ended or not self.is_chain or self._key is None:
            return
        key = _paused_key(call)
        with _State.lock:
            _State.paused[key] = self._key
            if len(_State.paused) > PAUSES_REMEMBERED:
                _State.paused.popitem(last=False)
        self.book.interrupt(
            str(error) or "paused", resume_key=key[0], payload=content_of(call.arguments)
        )

    def _is_limit(self, error: BaseException) -> bool:
        told = f"Chain limit of {printed(self._limit)} exceeded."
        return self.is_chain and isinstance(error, ValueError) and str(error) == told

    def _listen(self, messages: Sequence[Any]) -> None:
        """Tell the messages that were not told yet; older ones were other runs'."""
        book = self._told()
        for place in range(self._heard, len(messages)):
            for fields in said.messages_of(messages[place]):
                book.tell(ev.Message, {**fields, "index": place})
        self._heard = max(self._heard, len(messages))

    def _say(self) -> None:
        if self._output:
            told = {"role": "assistant", "content": content_of(self._output)}
            raw = {"part": "text"}
            self._told().tell(ev.Message, {**told, "index": self._heard, "raw": raw})

    def _told(self) -> RunBook:
        if self.book is None:
            raise RuntimeError("the run did not start")
        return self.book


def _paused_key(call: Any) -> tuple[str, str]:
    return printed(call.tool_call_id), printed(call.name)


def _resumed(pending: Sequence[Any]) -> tuple[str, str] | None:
    """Return the key of the run that waited in one of these calls, and that call's id."""
    with _State.lock:
        for call in few(pending):
            key = _State.paused.pop(_paused_key(call), None)
            if key is not None:
                return key, printed(call.tool_call_id)
    return None


def run_of(response: Any) -> HostRun | None:
    """Return the run that a response belongs to; ``None`` if it was not seen."""
    return _State.runs.get(response)


def belongs(response: Any, run: HostRun) -> None:
    """Remember which run a response belongs to."""
    _State.runs[response] = run


def enter(run: HostRun | None) -> "Token[door.Run | None] | None":
    """Make a run the innermost one here, for a step of its host."""
    handle = None if run is None else run.handle
    return None if handle is None else door.enter(handle)


def leave(token: "Token[Any] | None") -> None:
    """Let what was the innermost run before be that again."""
    if token is not None:
        with suppress(ValueError):  # left in another context than it was entered in
            token.var.reset(token)
