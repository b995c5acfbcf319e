"""Stores experiments and jobs as serialized messages instead of JSON, and deletes the rows of removed jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import sqlalchemy as sa
from alembic import op
from google.protobuf.json_format import MessageToJson, Parse, ParseError

from hopyard.errors import DataLoss
from hopyard.v1.common_pb2 import JobState
from hopyard.v1.experiment_pb2 import Experiment, ExperimentState, Job

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

M = TypeVar("M", Experiment, Job)
Row = Mapping[Any, Any]


def upgrade() -> None:
    """Replace the column `detail_json`, and the columns that no query needs, by the column `message`."""
    message = sa.Column("message", sa.LargeBinary, nullable=False)
    _replace("experiments", _new_experiment, sa.Column("state", sa.Integer, nullable=False), _created_at(), message)
    _replace("jobs", _new_job, _ordinal(), message)


def downgrade() -> None:
    """Restore the columns that `upgrade` replaces. The rows of removed jobs are not restored."""
    state = sa.Column("state", sa.Text, nullable=False)
    detail = sa.Column("detail_json", sa.Text, nullable=False)
    others = (sa.Column("name", sa.Text, nullable=False), sa.Column("ended_at", sa.Double, nullable=False))
    _replace("experiments", _old_experiment, state, _created_at(), detail, *others)
    _replace("jobs", _old_job, _ordinal(), state, detail)


def _created_at() -> sa.Column[float]:
    return sa.Column("created_at", sa.Double, nullable=False)


def _ordinal() -> sa.Column[int]:
    return sa.Column("ordinal", sa.BigInteger, nullable=False)


def _replace(table: str, convert: Callable[[Row], Row | None], *columns: sa.Column[Any]) -> None:
    """Recreate a table of experiments or jobs, because SQLite cannot change the type of a column.

    Args:
        table: Name of the table.
        convert: Returns the new row for an old one; None: the row is deleted.
        columns: The new columns besides the key.
    """
    old = op.get_bind().execute(sa.select(sa.text("*")).select_from(sa.table(table))).mappings()
    rows = [dict(new) for row in old if (new := convert(row)) is not None]
    key = ["id"] if table == "experiments" else ["experiment", "id"]
    order = ["created_at", "id"] if table == "experiments" else ["experiment", "ordinal", "id"]
    op.drop_table(table)
    made = op.create_table(
        table,
        *(sa.Column(name, sa.Text, nullable=False) for name in key),
        *columns,
        sa.PrimaryKeyConstraint(*key, name=f"pk_{table}"),
    )
    op.create_index(f"ix_{table}_{'_'.join(order)}", table, order)
    op.bulk_insert(made, rows)


def _parse(row: Row, message: M, which: str) -> M:
    """Return the message of type `M` for the JSON of a row. DataLoss: the JSON is damaged, or it is that of another row."""
    try:
        Parse(row["detail_json"], message, ignore_unknown_fields=True)
        problem = None if message.id == row["id"] else f"its id is {message.id!r:.80}"
    except (ParseError, TypeError, ValueError) as error:
        problem = f"{error!s:.200}"
    if problem is not None:
        raise DataLoss(
            f"database: the row of {which} is damaged: {problem}; restore the database from a copy, nothing was changed"
        )
    return message


def _new_experiment(row: Row) -> Row:
    message = _parse(row, Experiment(), f"experiment {row['id']!r}")
    return {**row, "state": message.state, "message": message.SerializeToString()}


def _new_job(row: Row) -> Row | None:
    if row["state"] == "REMOVED":
        return None
    message = _parse(row, Job(), f"job {row['id']!r} of experiment {row['experiment']!r}")
    message.ordinal = row["ordinal"]
    return {**row, "message": message.SerializeToString()}


def _old_experiment(row: Row) -> Row:
    message = Experiment.FromString(row["message"])
    state = ExperimentState.Name(message.state).removeprefix("EXPERIMENT_STATE_")
    detail = MessageToJson(message, indent=None)
    return {**row, "state": state, "name": message.name, "ended_at": message.ended_at, "detail_json": detail}


def _old_job(row: Row) -> Row:
    message = Job.FromString(row["message"])
    state = JobState.Name(message.state).removeprefix("JOB_STATE_")
    return {**row, "state": state, "detail_json": MessageToJson(message, indent=None)}
