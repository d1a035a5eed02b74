"""Who the server is has to be proven, and no message holds the secret of an address."""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tau_live.core.errors import StoreUnavailableError
from tau_live.store.opening import open_at
from tests.pooler import Pooler, needs_pooler
from tests.postgres import Server, needs_postgres

psycopg = pytest.importorskip("psycopg")
pytestmark = needs_postgres

NAME = "db.example"


def certified(folder: Path, name: str, *, days: int = 2) -> tuple[Path, Path]:
    """Return a key and a certificate for a name, signed by itself; expired after no days."""
    key, request, certificate = (folder / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
    for arguments in (
        ["req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-addext",
         f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(request)],
        ["x509", "-req", "-in", str(request), "-key", str(key), "-copy_extensions", "copy",
         "-days", str(days), "-out", str(certificate)],
    ):  # fmt: skip
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)
    return key, certificate


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server that answers on this machine's network under another name, and its certificate."""
    folder = tmp_path_factory.mktemp("certificates")
    key, certificate = certified(folder, NAME)
    own = Server()
    try:
        own.listen(key, certificate)
        yield own, certificate
    finally:
        own.remove()


def address(own: Server, *, name: str = NAME, more: str = "") -> str:
    return (
        f"postgresql://tau:secret-of-mine@{name}:{own.port}/postgres"
        f"?hostaddr=127.0.0.1&connect_timeout=5{more}"
    )


@pytest.mark.slow
def test_a_server_that_proves_its_name_is_taken(secured: tuple[Server, Path]) -> None:
    own, certificate = secured

    with closing(open_at(address(own, more=f"&sslrootcert={certificate}"))) as store:
        assert store.gate.load().state == "pass"


@pytest.mark.slow
def test_a_server_that_does_not_is_refused(secured: tuple[Server, Path], tmp_path: Path) -> None:
    own, certificate = secured
    _, stranger = certified(tmp_path, NAME)
    refused = {
        address(own): "sslrootcert=FILE",
        address(own, more=f"&sslrootcert={stranger}"): "sslrootcert=FILE",
        address(own, more=f"&sslrootcert={tmp_path}/none"): "authorities that can be read",
        address(own, name="other.example", more=f"&sslrootcert={certificate}"): "have the name",
    }

    for one, todo in refused.items():
        with pytest.raises(StoreUnavailableError, match="certificate") as raised:
            open_at(one)
        assert "secret-of-mine" not in str(raised.value)
        assert todo in raised.value.todo


@pytest.mark.slow
def test_a_server_whose_certificate_has_expired_is_refused(tmp_path: Path) -> None:
    key, certificate = certified(tmp_path, NAME, days=-1)
    own = Server()
    try:
        own.listen(key, certificate)
        trusted = address(own, more=f"&sslrootcert={certificate}")
        with pytest.raises(StoreUnavailableError, match="certificate verify failed") as raised:
            open_at(trusted)
        with closing(open_at(address(own, more="&sslmode=require"))) as store:
            assert store.gate.load().state == "pass"  # nothing else is the matter
    finally:
        own.remove()

    assert "secret-of-mine" not in str(raised.value)


@pytest.mark.slow
def test_a_server_that_encrypts_nothing_is_refused() -> None:
    own = Server()
    try:
        own.listen()
        with pytest.raises(StoreUnavailableError, match="does not support SSL") as raised:
            open_at(address(own))
        assert "turn ssl on" in raised.value.todo
        with closing(open_at(address(own, more="&sslmode=disable"))) as store:
            assert store.gate.load().state == "pass"  # named in the address: it is taken
    finally:
        own.remove()


@pytest.mark.parametrize(
    "malformed", ["postgresql://u:secret@[x/db", "postgresql://h/db?nope=secret"]
)
def test_a_malformed_address_is_not_repeated(malformed: str) -> None:
    with pytest.raises(StoreUnavailableError, match="malformed") as raised:
        open_at(malformed)

    assert "secret" not in str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("login", "password", "problem", "todo"),
    [
        ("tau", "", "no password supplied", "~/.pgpass or a service file"),
        ("tau", ":wrong", "authentication failed", "the password that is expected"),
        ("other", "", "no pg_hba.conf entry", "in pg_hba.conf of the server"),
    ],
)
def test_a_login_that_is_refused_is_named_with_what_to_do(
    login: str, password: str, problem: str, todo: str, strict: Server, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))

    with pytest.raises(StoreUnavailableError, match=problem) as raised:
        open_at(f"postgresql://{login}{password}@127.0.0.1:{strict.port}/postgres")

    assert todo in raised.value.todo


@pytest.fixture(scope="module")
def strict() -> Iterator[Server]:
    """A server that wants a password of one login, and refuses any other."""
    own = Server()
    try:
        with psycopg.connect(own.address("postgres"), autocommit=True) as connection:
            connection.execute("alter role tau password 'secret-of-mine'")
        (own.data / "pg_hba.conf").write_text("host all tau 127.0.0.1/32 scram-sha-256\n")
        own.listen()
        yield own
    finally:
        own.remove()


@pytest.mark.slow
@needs_pooler
def test_a_pooler_that_refuses_tenants_is_named_with_what_to_do() -> None:
    own = Server()
    pooler = Pooler(own, ignored="extra_float_digits")
    try:
        through = pooler.address(own.new_database())
        with pytest.raises(StoreUnavailableError, match="startup parameter") as raised:
            open_at(f"{through}&tenant=team_a")
        open_at(through).close()  # nothing else is the matter
    finally:
        pooler.stop()
        own.remove()

    assert "alter role LOGIN set search_path = TENANT" in raised.value.todo
