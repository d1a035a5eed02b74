"""The published Training-Free GRPO as a peer: its own trainer, on the model that everybody has.

It is run by the Python of its own environment, from its own checkout: ``TrainingFreeGRPO`` with its
``RolloutManager``, ``ExperienceUpdater``, agents, prompts and database. Its model is an endpoint on
this machine; its final instructions are what its own configuration of the trained agent says.

    python peer_youtu.py CHECKOUT WORLD SEED EPOCHS GROUPS GROUP_SIZE
"""

import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.lesson_stub import reply, tasks

INSTRUCTIONS = "Answer the question."
VERIFY = """
def verify_func(sample, **kwargs):
    return {"reward": float((sample.response or "").strip() == sample.correct_answer)}
"""


class Endpoint:
    """An OpenAI-compatible endpoint of the stub model.

    Attributes:
        calls: How often it was called.
    """

    def __init__(self, world: str, seed: int) -> None:
        self.calls = 0
        self._world, self._seed = world, seed
        self._seen: Counter[str] = Counter()
        self._lock = Lock()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                content = json.dumps(endpoint.answer(body)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answer a request; the same prompt has another seed each time."""
        texts = {"system": "", "user": ""}
        for message in body["messages"]:
            content = message["content"]
            parts = content if isinstance(content, list) else [{"text": content}]
            texts["system" if message["role"] == "system" else "user"] += "".join(
                part["text"] for part in parts
            )
        with self._lock:
            self.calls += 1
            number = self._seen[texts["system"] + texts["user"]]
            self._seen[texts["system"] + texts["user"]] += 1
        text = reply(self._world, texts["system"], texts["user"], f"{self._seed}-{number}")
        return {
            "id": f"stub-{self.calls}", "object": "chat.completion", "created": 0, "model": "stub",
            "choices": [{"index": 0, "finish_reason": "stop",
                         "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }  # fmt: skip


def play(checkout: Path, world: str, seed: int, epochs: int, groups: int, size: int) -> Any:
    """Practise, and return the instructions of the trained agent, with the calls it took."""
    endpoint = Endpoint(world, seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        verify = folder / "verify.py"
        verify.write_text(VERIFY)
        os.environ |= {
            "UTU_LLM_TYPE": "chat.completions", "UTU_LLM_MODEL": "stub", "UTU_LLM_API_KEY": "none",
            "UTU_LLM_BASE_URL": endpoint.url, "UTU_DB_URL": f"sqlite:///{folder / 'utu.db'}",
            "OPENAI_API_KEY": "none", "OPENAI_AGENTS_DISABLE_TRACING": "1",
        }  # fmt: skip
        sys.path.insert(0, str(checkout))
        import yaml
        from utu.config import AgentConfig, EvalConfig, TrainingFreeGRPOConfig
        from utu.config.eval_config import DataConfig
        from utu.db import DatasetSample
        from utu.practice import TrainingFreeGRPO
        from utu.utils import SQLModelUtils

        with SQLModelUtils.create_session() as session:
            for number, (question, answer) in enumerate(tasks("train", groups, 1000)):
                session.add(
                    DatasetSample(
                        dataset="poles", index=number, source="training_free_grpo",
                        question=question, answer=answer,
                    )
                )  # fmt: skip
            session.commit()
        provider = {"type": "chat.completions", "model": "stub", "base_url": endpoint.url,
                    "api_key": "none"}  # fmt: skip
        agent = AgentConfig(
            type="simple",
            model={"model_provider": provider, "model_settings": {"temperature": 0.3}},
            agent={"name": "poles", "instructions": INSTRUCTIONS},
        )
        evaluation = EvalConfig(
            exp_id=f"bench-{world}-{seed}", data=DataConfig(dataset="poles"), agent=agent,
            concurrency=8, judge_concurrency=8, verify_filename=str(verify),
            verify_func_name="verify_func", db_url=os.environ["UTU_DB_URL"],
        )  # fmt: skip
        config = TrainingFreeGRPOConfig(
            exp_id=f"bench-{world}-{seed}",
            practice={
                "epochs": epochs, "batch_size": groups, "grpo_n": size, "rollout_concurrency": 8,
                "rollout_temperature": 0.7, "agent_objective": "Say how long a pole is.",
                "learning_objective": "Give answers of the right form.", "restart_step": 0,
            },
            data={"practice_dataset_name": "poles"},
            evaluation=evaluation,
        )  # fmt: skip
        trained = TrainingFreeGRPO(config)
        path = Path(asyncio.run(trained.run()))
        instructions = yaml.safe_load(path.read_text())["agent"]["instructions"]
        path.unlink()
    lessons = [*(trained.recorder.experiences or {}).values()]
    return {"instructions": instructions, "lessons": lessons, "calls": endpoint.calls}


if __name__ == "__main__":
    found = play(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
    print(json.dumps(found))
