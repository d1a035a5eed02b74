"""Who the server is has to be proven, and no message holds the secret of an address."""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tau_live.core.errors import StoreUnavailableError
from tau_live.store.opening import open_at
from tests.postgres import Server, needs_postgres

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
    refused = [
        address(own),
        address(own, more=f"&sslrootcert={stranger}"),
        address(own, name="other.example", more=f"&sslrootcert={certificate}"),
    ]

    for one in refused:
        with pytest.raises(StoreUnavailableError, match="certificate") as raised:
            open_at(one)
        assert "secret-of-mine" not in str(raised.value)


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
        with pytest.raises(StoreUnavailableError, match="does not support SSL"):
            open_at(address(own))
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
