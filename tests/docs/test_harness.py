"""Tests that the page runner reports each kind of error on a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.options import mistakes
from tests.docs.page_runner import Failed, Run, smaller
from tests.docs.pages import PageError, read_page


def run(folder: Path, page: str) -> None:
    Run(folder).blocks(read_page(page, "page.md"))


def test_blocks_share_a_folder_and_named_files_are_written(tmp_path: Path) -> None:
    run(
        tmp_path,
        "`tool.py`: a program.\n\n```python\nprint('made', 6 * 7)\n```\n\n"
        "Run it:\n\n```console\n$ python tool.py > out\n$ cat out\nmade 42\n```\n\n```bash\ngrep -q 42 out\n```\n",
    )
    assert (tmp_path / "out").read_text() == "made 42\n"


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```bash\ntrue\nfalse\ntrue\n```\n", r"page\.md:2: ended with 1"),
        ("```bash\nfalse | cat\n```\n", "ended with 1"),
        ("```console\n$ echo found; exit 3\n```\n", r"ended with 3:\nfound"),
        ("<!-- docs: exit 1 -->\n```bash\ntrue\n```\n", "ended with 0"),
        ('<!-- docs: shows "two" -->\n```bash\necho one\n```\n', "does not show 'two'"),
        ('<!-- docs: Ctrl-C after "two" -->\n```bash\necho one\n```\n', "never said 'two'"),
        ("<!-- docs: compared -->\n```console\n$ echo a b; echo c\na ... d\n```\n", "the sample is not"),
        ("```python\nif:\n```\n", "does not compile"),
        ("<!-- docs: run -->\n```python\nraise SystemExit(4)\n```\n", "ended with 4"),
        ("`test_it.py`:\n\n```python\ndef test_it():\n    assert False\n```\n", "ended with 1"),
        ("<!-- docs: same as LICENSE -->\n```text\nnone\n```\n", "differs from LICENSE"),
        (
            '<!-- docs: background until "up" -->\n```bash\ntrap "exit 5" INT; echo up; while true; do sleep 0.1; done\n```\n',
            "ended with 5",
        ),
    ],
)
def test_what_is_not_so_is_told(tmp_path: Path, page: str, said: str) -> None:
    with pytest.raises(Failed, match=said):
        run(tmp_path, page)


def test_an_interrupt_a_background_and_a_replacement(tmp_path: Path) -> None:
    # A shell's trap waits for the foreground command, and the signal can arrive before that begins: so the command is short.
    wait = "while true; do sleep 0.1; done"
    page = (
        '<!-- docs: in tests "first:4650" is "127.0.0.1:{port}" -->\n\n'
        '<!-- docs: background until "up" -->\n'
        f'```bash\ntrap "exit 0" INT; echo first:4650 > where; echo up; {wait}\n```\n\n'
        f'<!-- docs: Ctrl-C after "there" -->\n```bash\ntrap "exit 130" INT; echo there; {wait}\n```\n\n'
        "<!-- docs: compared -->\n```console\n$ cat where; echo and so on\n127.0.0.1:... and so\n```\n"
    )
    run(tmp_path, page)
    assert (tmp_path / "where").read_text().startswith("127.0.0.1:")


def test_a_page_that_begins_in_the_middle(tmp_path: Path) -> None:
    run(tmp_path, "<!-- docs: before\necho made > it\n-->\n\n```bash\ngrep made it\n```\n")


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```bash\ntrue\n", r"page\.md:1: this fence does not end"),
        ("text\n\n    hopyard best\n", r"page\.md:3: a command outside of a fence"),
        ("```\nhopyard best\n```\n", r"page\.md:2: a command in a block that is not run"),
        ("<!-- docs: skip it -->\n```bash\ntrue\n```\n", "not understood"),
        ("<!-- docs: not run: -->\n```bash\ntrue\n```\n", "not understood"),
        ("<!-- docs: run -->\n\ntext\n", "not right before a block"),
        ("<!-- docs: run -->\n", "has no block"),
    ],
)
def test_a_page_that_cannot_be_read_is_told(page: str, said: str) -> None:
    with pytest.raises(PageError, match=said):
        read_page(page, "page.md")


def test_a_block_that_is_not_run_is_not(tmp_path: Path) -> None:
    run(tmp_path, "<!-- docs: not run: needs a second host -->\n```bash\ntouch it\n```\n")
    assert not (tmp_path / "it").exists()


def test_commands_that_do_not_exist_are_told() -> None:
    text = (
        "`hopyard best --jsn`, `hopyard bets`, `hopyard pause|resume`, `hopyard agent --slots 2`, `hopyard --version`\n"
    )
    found = list(mistakes(text, []))
    assert len(found) == 2
    assert "best has no option --jsn" in found[0]
    assert "there is no command bets" in found[1]
    blocks = read_page("<!-- docs: not run: why -->\n```bash\nhopyard up --slot 3  # a comment\n```\n", "page.md")
    assert list(mistakes("", blocks)) == ["`hopyard up --slot 3  # a comment`: up has no option --slot"]


def test_experiments_are_cut_down() -> None:
    text = "metric: {name: a, mode: max, target: 0.995}\nstop: {jobs: 24, max_iterations: 20, max_time: 10m}\n"
    assert smaller(text) == "metric: {name: a, mode: max}\nstop: {jobs: 2, max_iterations: 2, max_time: 10m}\n"
