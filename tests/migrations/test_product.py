"""A product with migrations of its own, in one database with the store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sqlalchemy import Engine, text

PRODUCT = Path(__file__).parent / "product"


def test_a_products_migrations_stand_beside_the_stores(engine: Engine, database_url: str) -> None:
    """Its package, its version table, its transaction; autogenerate finds its own column alone."""
    run = subprocess.run(
        [sys.executable, "program.py", database_url],
        cwd=PRODUCT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ("add_column\n", "") == (run.stdout, run.stderr)
    with engine.connect() as connection:
        assert "a1" == connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
