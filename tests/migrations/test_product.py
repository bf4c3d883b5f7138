"""A product with migrations, tables, a session and a login of its own, in the store's database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Engine, make_url, text

from tests.cli.program import run
from tests.warm import Programs

PRODUCT = Path(__file__).parent / "product"


@pytest.fixture
def login(engine: Engine) -> Iterator[str]:
    """Name of the login that the product runs as; of SQLite, which has none, any."""
    name = f"product_{uuid4().hex[:8]}"
    if engine.dialect.name == "sqlite":
        yield name
        return
    with engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'"))
    yield name
    with engine.begin() as connection:
        connection.execute(text(f"DROP OWNED BY {name}"))
        connection.execute(text(f"DROP ROLE {name}"))


def program(programs: Programs, url: str, name: str, *arguments: str) -> str:
    """Run the product's program, and return what it prints."""
    prefix = "shop_" if url.startswith("sqlite") else ""
    variables = {**os.environ, "PRODUCT_PREFIX": prefix}
    said = ["program.py", name, url, *arguments]
    done = programs.run(*said, directory=PRODUCT, environment=variables)
    assert (0, "") == (done.returncode, done.stderr), done.stderr
    return done.stdout


def test_a_product_and_the_store_share_a_database(
    programs: Programs, engine: Engine, database_url: str, login: str
) -> None:
    """Its package, tables and version table are its own; its login needs rights on rows alone."""
    owner, url = database_url, make_url(database_url)
    commands: list[tuple[str, ...]] = [("db", "upgrade")]
    if url.get_backend_name() == "postgresql":
        url, owner = url.set(username=login, password="secret"), f"{owner}&schema=agent"
        commands.append(("db", "grant", login))
    own = url.render_as_string(hide_password=False)

    program(programs, database_url, "migrate", login)
    for command in commands:
        assert 0 == run(*command, url=owner).status
    program(programs, own, "converse")
    assert 0 == run("projections", "rebuild", url=owner).status
    program(programs, own, "go_on")

    found = program(programs, database_url, "compare")
    assert ("add_column", 1) == (found[2:12], found.count("\n")), found
    with engine.connect() as connection:
        assert "a1" == connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
