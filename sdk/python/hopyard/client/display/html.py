"""HTML for notebooks: a card with the fields of a value, and a table of rows."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence


def card(title: str, fields: Mapping[str, str], colors: Mapping[str, str] | None = None) -> str:
    """Return HTML of a title above a table with one row for each field. Fields with an empty text are omitted.

    Args:
        title: The title; it is escaped, as are all other texts.
        fields: The texts by name.
        colors: Colors as #rrggbb of the texts by name; the other texts have the color of the notebook.
    """
    styles = {name: f"; color: {color}" for name, color in (colors or {}).items() if color}
    rows = "".join(
        f"<tr><th style='text-align: left'>{html.escape(name)}</th>"
        f"<td style='text-align: left{styles.get(name, '')}'>{html.escape(text)}</td></tr>"
        for name, text in fields.items()
        if text
    )
    return f"<div><b>{html.escape(title)}</b><table>{rows}</table></div>"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> str:
    """Return HTML of a table. All texts are escaped.

    Args:
        columns: The names of the columns.
        rows: For each row its texts, one for each column.
        note: A text below the table; empty: none.
    """
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    below = f"<p>{html.escape(note)}</p>" if note else ""
    return f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>"
