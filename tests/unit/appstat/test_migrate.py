from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from google.protobuf.json_format import MessageToJson
from sqlalchemy import Connection, Engine, inspect, text

from hopyard.errors import Conflict, DataLoss, InvalidInput
from hopyard.v1.common_pb2 import JOB_STATE_HELD
from hopyard.v1.experiment_pb2 import EXPERIMENT_STATE_PAUSED, Experiment, Job
from hopyard_appstat.database.connections import Database, Synchronous, database_url, open_database
from hopyard_appstat.database.schema import metadata
from hopyard_appstat.migrations.migrate import _FOLDER, NEWEST, _config, migrate, upgrade

pytestmark = pytest.mark.quick


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(database_url(None, tmp_path))
    yield opened
    opened.close()


def test_the_newest_revision_is_that_of_the_last_migration() -> None:
    assert ScriptDirectory(str(_FOLDER)).get_current_head() == NEWEST


@pytest.mark.parametrize("make", [migrate, upgrade])
def test_an_empty_database_and_the_migrations_get_the_models(
    database: Database, make: Callable[[Engine], None]
) -> None:
    make(database.writer)
    make(database.writer)  # every start of AppStat does this
    migrate(database.writer)
    with database.writer.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert context.get_current_revision() == NEWEST
        assert compare_metadata(context, metadata) == []
    found = inspect(database.writer)
    for table in metadata.sorted_tables:
        names = {constraint["name"] for constraint in found.get_unique_constraints(table.name)}
        assert names == {c.name for c in table.constraints if type(c).__name__ == "UniqueConstraint"}
        made = text("select sql from sqlite_master where name = :name")
        with database.writer.connect() as connection:
            rises = "AUTOINCREMENT" in connection.scalar(made, {"name": table.name})
        assert rises is bool(table.dialect_options["sqlite"]["autoincrement"])


def test_a_failed_migration_leaves_nothing(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(*_: object) -> None:
        raise RuntimeError("power")

    monkeypatch.setattr("alembic.op.create_index", break_off)
    with pytest.raises(RuntimeError, match="power"):
        upgrade(database.writer)
    assert inspect(database.writer).get_table_names() == []
    monkeypatch.undo()
    upgrade(database.writer)


def test_a_database_without_the_search_plan_gets_it_and_keeps_what_it_has(database: Database) -> None:
    migrate(database.writer)
    with database.writer.begin() as connection:
        for table in ("scaling", "plan_snapshots", "plan_stretches", "plan_nodes"):
            connection.execute(text(f"drop table {table}"))
        _forget_format(connection)
        connection.execute(text("update alembic_version set version_num = '0002'"))
        connection.execute(text("insert into streams (name, length) values ('e1', 3)"))
    migrate(database.writer)
    with database.writer.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        assert connection.scalar(text("select length from streams")) == 3


def test_a_database_without_profiles_gets_their_table(database: Database) -> None:
    migrate(database.writer)
    with database.writer.begin() as connection:
        connection.execute(text("drop table scaling"))
        _forget_format(connection)
        connection.execute(text("update alembic_version set version_num = '0003'"))
    migrate(database.writer)
    with database.writer.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def _forget_format(connection: Connection) -> None:
    connection.execute(text("drop table clusters"))
    connection.execute(text("alter table streams drop column head"))
    for column in ("checksum", "version"):
        connection.execute(text(f"alter table journal drop column {column}"))


def test_records_without_a_format_are_kept_and_have_version_0(database: Database) -> None:
    migrate(database.writer)
    with database.writer.begin() as connection:
        _forget_format(connection)
        connection.execute(text("update alembic_version set version_num = '0004'"))
        connection.execute(text("insert into streams (name, length) values ('e1', 1)"))
        connection.execute(text("insert into journal values ('e1', 1, 1.0, 'Kind', x'00')"))
    migrate(database.writer)
    with database.writer.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        (version, checksum) = connection.execute(text("select version, checksum from journal")).one()
        assert version == 0
        assert connection.scalar(text("select head from streams")) == checksum != ""


def test_json_of_experiments_and_jobs_becomes_messages(database: Database) -> None:
    experiment = Experiment(id="e1", name="digits", state=EXPERIMENT_STATE_PAUSED, created_at=2.5, jobs={"HELD": 1})
    job = Job(experiment="e1", id="7", state=JOB_STATE_HELD, best_value=float("nan"), slots=["n/0"])
    rows = {
        "insert into experiments (id, name, state, created_at, ended_at, detail_json) "
        "values ('e1', 'digits', 'PAUSED', 2.5, 0, :detail)": experiment,
        "insert into jobs values ('e1', '7', 7, 'HELD', :detail)": job,
        "insert into jobs values ('e1', '8', 0, 'REMOVED', :detail)": Job(),
    }
    with database.writer.begin() as connection:
        _alembic("upgrade", "0005", connection)
        for statement, message in rows.items():
            connection.execute(text(statement), {"detail": MessageToJson(message, indent=None)})
    migrate(database.writer)
    job.ordinal = 7
    with database.writer.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        found = connection.execute(text("select state, created_at, message from experiments")).one()
        assert found[:2] == (EXPERIMENT_STATE_PAUSED, 2.5)
        assert Experiment.FromString(found[2]) == experiment
        ordinal, stored = connection.execute(text("select ordinal, message from jobs")).one()
        assert (ordinal, str(Job.FromString(stored))) == (7, str(job))
    with database.writer.begin() as connection:
        _alembic("downgrade", "0005", connection)
        _alembic("upgrade", "head", connection)
        assert connection.scalar(text("select message from jobs")) == stored


@pytest.mark.parametrize("detail", ["{broken", "[]", "", b"\x00\xff"])
def test_damaged_json_is_named_and_nothing_is_migrated(database: Database, detail: object) -> None:
    with database.writer.begin() as connection:
        _alembic("upgrade", "0005", connection)
        insert = text("insert into jobs values ('e1', '7', 7, 'HELD', :detail)")
        connection.execute(insert, {"detail": detail})
    with pytest.raises(DataLoss, match=r"the row of job '7' of experiment 'e1' is damaged: .*; restore"):
        migrate(database.writer)
    with database.writer.connect() as connection:
        assert connection.scalar(text("select version_num from alembic_version")) == "0005"
        assert connection.scalar(text("select detail_json from jobs")) == detail


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    url = database_url(None, tmp_path)
    (tmp_path / "appstat.sqlite").write_bytes(b"no database" * 100)
    opened = open_database(url)
    with pytest.raises(
        DataLoss,
        match=r"appstat.sqlite: cannot be read as a database .*; move the data directory away and restore a backup",
    ):
        migrate(opened.writer)
    opened.close()


def _alembic(direction: str, to: str, connection: Connection) -> None:
    config = _config()
    config.attributes["connection"] = connection
    getattr(command, direction)(config, to)


def test_a_database_with_tables_but_no_revision_is_left_as_it_is(database: Database) -> None:
    with database.writer.begin() as connection:
        connection.execute(text("create table journal (x int)"))
    with pytest.raises(DataLoss, match="the table alembic_version is missing"):
        migrate(database.writer)
    assert inspect(database.writer).get_table_names() == ["journal"]


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("delete from alembic_version", r"holds \[\]"),
        ("update alembic_version set version_num = x'ff00'", r"holds \[b'\\xff\\x00'\]"),
        ("insert into alembic_version values ('0001')", r"holds \[.*'0001'.*\]"),
    ],
)
def test_a_damaged_revision_is_refused(tmp_path: Path, statement: str, found: str) -> None:
    database = open_database(database_url(None, tmp_path))
    migrate(database.writer)
    with database.writer.begin() as connection:
        connection.execute(text(statement))
    with pytest.raises(DataLoss, match=f"appstat.sqlite: the table alembic_version {found}, needed is one row"):
        migrate(database.writer)
    database.close()


@pytest.mark.merge
def test_a_start_does_not_import_what_only_migrations_need(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; import hopyard_appstat.service\n"
        "from hopyard_appstat.database.connections import *; from hopyard_appstat.migrations.migrate import migrate\n"
        f"d = open_database(database_url(None, Path({str(tmp_path)!r}))); migrate(d.writer); migrate(d.writer); d.close()\n"
        "sys.exit(', '.join({'alembic', 'mako', 'pygments', 'sqlalchemy.dialects.postgresql'} & set(sys.modules)) or 0)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_a_database_of_a_newer_version_is_refused(database: Database) -> None:
    migrate(database.writer)
    with database.writer.begin() as connection:
        connection.execute(text("update alembic_version set version_num = '9999'"))
    with pytest.raises(Conflict, match="this version does not know the database's revision"):
        migrate(database.writer)


@pytest.mark.parametrize(("synchronous", "number"), [(Synchronous.NORMAL, 1), (Synchronous.FULL, 2)])
def test_sqlite_is_set_up(tmp_path: Path, synchronous: Synchronous, number: int) -> None:
    database = open_database(database_url(None, tmp_path), synchronous=synchronous)
    with database.writer.connect() as connection:
        ask = connection.exec_driver_sql
        assert ask("PRAGMA journal_mode").scalar() == "wal"
        assert ask("PRAGMA synchronous").scalar() == number
        assert ask("PRAGMA foreign_keys").scalar() == 1
        assert ask("PRAGMA busy_timeout").scalar() == 30_000
    with database.reader.connect() as connection, pytest.raises(Exception, match="readonly"):
        connection.exec_driver_sql("CREATE TABLE x (y)")
    database.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "--database"),
        ("mysql://u@h/d", "found 'mysql', allowed are sqlite and postgresql"),
        ("sqlite://", "would be lost"),
        ("sqlite:///:memory:", "would be lost"),
    ],
)
def test_a_url_that_is_not_supported_is_refused(tmp_path: Path, url: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        database_url(url, tmp_path)


def test_a_missing_driver_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"driver of postgresql\+psycopg is missing .*pip install"):
        open_database(database_url("postgresql+psycopg://u@h/d", tmp_path))
