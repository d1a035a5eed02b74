"""Decisions for agents in any language: of models by name, or of anything by HTTP."""

import json
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec

from tau_live.core.choices import Choice, fallback
from tau_live.core.guard import logger, text_of
from tau_live.core.records import LIVE
from tau_live.core.settings import Content as Kept
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredModel
from tau_live.runtime import api
from tau_live.serve.calls import Forwarded, answer_of
from tau_live.serve.guard import RefusedError

if TYPE_CHECKING:
    from tau_live.core.events import Content
    from tau_live.decisions.runs import RunHandle

T = TypeVar("T")

PREFIX = "tau/"
"""Begins the names of models that are decided."""

HOST = "proxy"
"""The host of the runs, by whose name the id of an answer finds its run."""

MOST_OPEN = 10_000
"""How many runs may be open; the oldest is abandoned for a new one."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Features = Mapping[str, float | int | str | bool | None]


class BeginRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run begins.

    Attributes:
        name: The kind of run.
        key: Identifies it among all of its name; the same key again is another attempt at it.
        session: The id that the runs of one conversation share.
        metadata: Plain data to store with it.
    """

    name: Name
    key: Name | None = None
    session: Name | None = None
    metadata: dict[str, Any] = {}


class EndRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run ends.

    Attributes:
        error: What went wrong; ``None`` if nothing did.
    """

    error: Annotated[str, msgspec.Meta(max_length=1000)] | None = None


class Decide(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something is to be decided.

    Attributes:
        point: The decision point.
        options: Names, or names with features.
        run: The open run that it belongs to; without one it is a run of its own.
        context: Facts about the situation.
        default: The agent's own choice; the first option by default.
        allowed: The options that may be chosen this time.
        exploit_only: Options that are never explored.
    """

    point: Name
    options: (
        Annotated[list[Name], msgspec.Meta(min_length=1, max_length=1000)]
        | dict[Name, Features | None]
    )
    run: Name | None = None
    context: dict[str, Any] = {}
    default: Name | None = None
    allowed: list[Name] | None = None
    exploit_only: list[Name] | None = None


class GiveReward(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A reward.

    Attributes:
        id: A decision, a run, or the id of a model's answer.
        value: How good it was.
        name: The name of the reward.
        key: Distinguishes rewards of the same name; repeating one changes nothing.
        comment: A comment.
    """

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    value: float | bool
    name: Name = "reward"
    key: Annotated[str, msgspec.Meta(max_length=200)] = ""
    comment: Annotated[str, msgspec.Meta(max_length=1000)] | None = None


class Failed(Exception):  # noqa: N818  # the class of a run's error, as it is stored
    """What an agent says went wrong."""


class Chosen(NamedTuple):
    """The upstream model that was chosen.

    Attributes:
        option: Its name.
        model: The name of the model at the upstream.
        url: Its API; ``None`` for the proxy's own.
        key: Its key; ``None`` for the client's.
        params: What replaces parameters of the request.
        choice: The decision.
        run: The run of the call; ``None`` while nothing is recorded.
        span_id: What its start and its end are known by.
    """

    option: str
    model: str
    url: str | None
    key: str | None
    params: Mapping[str, object]
    choice: Choice
    run: "RunHandle | None"
    span_id: str


class Deciding:
    """The decisions of one process.

    Args:
        settings: Those of its learner, and the models that are decided.
        environ: The environment, with the keys of upstream models.
    """

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._models = {model.name: model for model in settings.models}
        self._open: OrderedDict[str, RunHandle] = OrderedDict()
        self._keeps_no_text = settings.content is Kept.NONE
        self._runtime = api.attach(settings)

    def close(self) -> None:
        """End open runs, and store what is pending."""
        while self._open:
            self._abandon()
        api.detach()

    @property
    def models(self) -> list[str]:
        """The models that are decided, as clients name them."""
        return [f"{PREFIX}{name}" for name in self._models]

    def choose(
        self, body: Mapping[str, Any], headers: Mapping[str, str], streaming: bool
    ) -> Chosen | None:
        """Return the upstream model for a request; ``None`` if its model is not decided.

        Raises:
            RefusedError: No such model is declared.
        """
        name = body.get("model")
        if not isinstance(name, str) or not name.startswith(PREFIX):
            return None
        declared = self._models.get(name.removeprefix(PREFIX))
        if declared is None:
            known = ", ".join(self.models) or "none"
            text = f"no model {name!r} is declared: there are {known}"
            raise RefusedError(404, "tau_unknown_model", text)
        options = {
            option: dict(part) if isinstance(part := table.get("features"), Mapping) else None
            for option, table in declared.options.items()
        }
        default = declared.default or next(iter(options))
        run, choice = None, fallback([*options], default)
        span_id = f"proxy-{uuid.uuid4().hex}"
        try:
            run = self._begin(BeginRun(name=declared.name))
            if run is not None and self._runtime is not None:
                choice = self._runtime.decide(
                    run, declared.name, options=options, default=default, allowed=None,
                    context=_context(declared, body, headers), exploit_only=None,
                )  # fmt: skip
                model = declared.options[choice.option]["model"]
                self._tell_start(run, span_id, str(model), body, streaming=streaming)
        except Exception as error:  # noqa: BLE001  # no failure of ours is the client's
            logger().error("proxy_not_decided", error=text_of(error), effect="the default")
        table = declared.options[choice.option]
        key_env, url, given = table.get("key_env"), table.get("url"), table.get("params")
        return Chosen(
            choice.option,
            str(table["model"]),
            None if url is None else str(url).rstrip("/").removesuffix("/v1"),
            None if key_env is None else self._environ.get(str(key_env)),
            given if isinstance(given, Mapping) else {},
            choice,
            run,
            span_id,
        )

    def _tell_start(
        self, run: "RunHandle", span_id: str, model: str, body: Mapping[str, Any], *,
        streaming: bool,
    ) -> None:  # fmt: skip
        from tau_live.core.events import ModelStart

        if self._runtime is not None:
            prompt = body.get("messages", body.get("input"))
            fields = {
                "span_id": span_id, "model_requested": model, "streaming": streaming,
                "params": {key: value for key, value in body.items() if key in PARAMS},
                "messages": self._text(prompt),
            }  # fmt: skip
            self._runtime.tell(run, ModelStart, fields)

    def _text(self, value: object) -> "Content | None":
        """Return a text to be redacted by the writer; none where texts are not kept."""
        from tau_live.core.events import Content

        if value is None or self._keeps_no_text:
            return None
        return Content(text=value if isinstance(value, str) else json.dumps(value))

    def end(self, chosen: Chosen, call: Forwarded, error: str | None) -> None:
        """Record the call of a model that was chosen, and end its run."""
        from tau_live.core.events import ModelEnd

        if self._runtime is None or chosen.run is None:
            return
        answer = answer_of(call)
        reason = answer.get("finish_reason")
        fields = {
            "span_id": chosen.span_id, "status": "ok" if error is None else "error",
            "model_used": answer.get("model"), "response_id": answer.get("id"),
            "usage": answer.get("usage") or {},
            "finish_reasons": (reason,) if isinstance(reason, str) else (),
            "duration_ms": call.duration_ms, "ttft_ms": call.first_byte_ms,
            "output": self._text(answer["text"]),
            "raw": {
                "endpoint": call.endpoint, "http_status": call.status, "error": error,
                "request_bytes": len(call.request), "response_bytes": call.response_bytes,
            },
        }  # fmt: skip
        self._runtime.tell(chosen.run, ModelEnd, fields)
        self._runtime.end_run(chosen.run, None if error is None else Failed(error))

    def withdraw(self, chosen: Chosen) -> None:
        """Abandon the run of a call that was not forwarded: it says nothing of any option."""
        if self._runtime is not None and chosen.run is not None:
            self._runtime.abandon_run(chosen.run)

    def _begin(self, wanted: BeginRun) -> "RunHandle | None":
        if self._runtime is None:
            return None
        return self._runtime.begin_run(
            wanted.name, key=f"{wanted.name}:{wanted.key or uuid.uuid4().hex}",
            session=wanted.session, metadata=wanted.metadata or None, parent=None, host=HOST,
        )  # fmt: skip

    def begin_run(self, wanted: BeginRun) -> dict[str, object]:
        """Begin a run that stays open until it is ended."""
        run = self._begin(wanted)
        if run is None or not run.recorded:
            return {"run": None, "recorded": False}
        while len(self._open) >= MOST_OPEN:
            self._abandon()
        self._open[run.rollout_id] = run
        return {"run": run.rollout_id, "recorded": True}

    def _abandon(self) -> None:
        _, run = self._open.popitem(last=False)
        if self._runtime is not None:
            self._runtime.abandon_run(run)

    def end_run(self, run_id: str, ending: EndRun) -> dict[str, object]:
        """End an open run. Raises: RefusedError: It is not open."""
        run = self._open_run(run_id)
        del self._open[run_id]
        if self._runtime is not None:
            self._runtime.end_run(run, None if ending.error is None else Failed(ending.error))
        return {"run": run_id}

    def _open_run(self, run_id: str) -> "RunHandle":
        run = self._open.get(run_id)
        if run is None:
            raise RefusedError(404, "tau_unknown_run", f"no run {run_id!r} is open here")
        return run

    def decide(self, wanted: Decide) -> dict[str, object]:
        """Decide.

        Raises:
            RefusedError: The run is not open, or what is wanted contradicts itself.
        """
        options = wanted.options if isinstance(wanted.options, dict) else [*wanted.options]
        for name in (wanted.default, *(wanted.allowed or ()), *(wanted.exploit_only or ())):
            if name is not None and name not in options:
                raise RefusedError(400, "tau_malformed", f"{name!r} is none of the options")
        if not options or len({*options}) < len(options):
            raise RefusedError(400, "tau_malformed", "options are given, each once")
        if wanted.allowed == []:
            raise RefusedError(400, "tau_malformed", "at least one option is allowed")
        if wanted.run is not None:
            return _plain(self._decide(self._open_run(wanted.run), wanted))
        run = self._begin(BeginRun(name=wanted.point))
        try:
            return _plain(self._decide(run, wanted))
        finally:
            if run is not None and self._runtime is not None:
                self._runtime.end_run(run, None)

    def _decide(self, run: "RunHandle | None", wanted: Decide) -> Choice:
        if run is None or self._runtime is None:
            allowed = wanted.allowed
            own = [name for name in wanted.options if allowed is None or name in allowed]
            return fallback(own, wanted.default if wanted.default in own else None)
        return self._runtime.decide(
            run, wanted.point, options=wanted.options, context=wanted.context,
            default=wanted.default, allowed=wanted.allowed, exploit_only=wanted.exploit_only,
        )  # fmt: skip

    def reward(self, given: GiveReward) -> dict[str, object]:
        """Take a reward, also long after, and before its run is stored."""
        is_decision = ":attempt-" in given.id
        is_run = given.id.startswith(LIVE)
        accepted = api.reward(
            given.value,
            run=None if is_decision else given.id,
            decision=given.id if is_decision else None,
            host=None if is_decision or is_run else HOST,
            name=given.name, key=given.key, comment=given.comment,
        )  # fmt: skip
        return {"accepted": accepted}


PARAMS = frozenset({"temperature", "top_p", "max_tokens", "max_completion_tokens", "seed"})


def _plain(choice: Choice) -> dict[str, object]:
    return {
        "option": choice.option, "decision": choice.id or None, "run": choice.run or None,
        "source": choice.source, "propensity": choice.probability,
        "policy_version": choice.policy_version,
    }  # fmt: skip


def _context(
    declared: DeclaredModel, body: Mapping[str, Any], headers: Mapping[str, str]
) -> dict[str, object]:
    metadata = body.get("metadata")
    known = metadata if isinstance(metadata, Mapping) else {}
    return {
        **{name: headers[name] for name in declared.context_headers if name in headers},
        **{name: known[name] for name in declared.context_metadata if name in known},
    }


def read(content: bytes, kind: type[T]) -> T:
    """Return what a request wants. Raises: RefusedError: It is malformed."""
    try:
        return msgspec.json.decode(content or b"{}", type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError(400, "tau_malformed", str(error)) from None
    except RecursionError:
        raise RefusedError(400, "tau_malformed", "it is nested too deeply") from None
