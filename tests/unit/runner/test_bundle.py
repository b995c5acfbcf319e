"""Tests of code bundles: which files they contain, equal bytes for equal folders, and safe unpacking."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hopyard._net.auth import SecretsFolder
from hopyard._runtime.bundle import (
    Bundle,
    BundleCorrupt,
    BundleError,
    BundleTooLarge,
    code_hash,
    pack,
    unpack,
    why_left_out,
)
from hopyard_appstat.backup.target import HEAD, Target

pytestmark = pytest.mark.quick


def fill(folder: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def write(folder: Path, bundle: Bundle) -> Path:
    file = folder / "packed"
    file.write_bytes(bundle.data)
    return file


def test_equal_folders_give_equal_bundles_whatever_their_times_and_order(tmp_path: Path) -> None:
    files = {"train.py": "x = 1\n", "lib/a.py": "", "lib/b.py": "b"}
    first = fill(tmp_path / "1", files)
    second = fill(tmp_path / "2", dict(reversed(files.items())))
    os.utime(second / "train.py", (1, 1))
    (second / "train.py").chmod(0o600)
    assert pack(first) == pack(second)
    assert pack(first).files == ("lib/a.py", "lib/b.py", "train.py")
    fill(second, {"train.py": "x = 2\n"})
    assert pack(first).sha256 != pack(second).sha256


def test_what_is_unpacked_is_what_was_packed(tmp_path: Path) -> None:
    folder = fill(tmp_path / "code", {"train.py": "x", "lib/äöü.py": "umlauts", "run.sh": "#!/bin/sh\n"})
    (folder / "run.sh").chmod(0o755)
    bundle = pack(folder)
    unpack(write(tmp_path, bundle), tmp_path / "out", bundle.sha256)
    assert pack(tmp_path / "out") == bundle
    assert os.access(tmp_path / "out" / "run.sh", os.X_OK)
    assert (tmp_path / "out" / "train.py").stat().st_mode & 0o222 == 0


def test_ignored_files_stay_at_home(tmp_path: Path) -> None:
    folder = fill(
        tmp_path,
        {
            ".hopyardignore": "# data\n*.csv\n/results/\n!keep.csv\ndocs/**/draft.md\nlog?[0-9].txt\nbuild/\n",
            "train.py": "",
            "data.csv": "",
            "lib/data.csv": "",
            "lib/keep.csv": "",
            "results/a.txt": "",
            "lib/results/a.txt": "",
            "docs/x/y/draft.md": "",
            "docs/draft.md": "",
            "log-1.txt": "",
            "log-x.txt": "",
            "build/x": "",
            "lib/build/x": "",
            "lib/built": "",
            ".git/HEAD": "",
            "lib/__pycache__/a.pyc": "",
            "a.pyc": "",
            ".venv/bin/python": "",
            "hopyard-data/x": "",
        },
    )
    assert pack(folder).files == (
        ".hopyardignore",
        "lib/built",
        "lib/keep.csv",
        "lib/results/a.txt",
        "log-x.txt",
        "train.py",
    )


def test_data_directories_of_clusters_stay_at_home(tmp_path: Path) -> None:
    folder = fill(
        tmp_path,
        {
            "train.py": "",
            "lib/a.py": "",
            "runs/1/cluster.lock": "",
            "runs/1/agent/snapshots/x": "",
            "runs/2/appstat.sqlite": "",
            "runs/2/blobs/x": "",
            "runs/readme.txt": "",
            "notes/my-cluster.lock": "",
        },
    )
    assert pack(folder).files == ("lib/a.py", "notes/my-cluster.lock", "runs/readme.txt", "train.py")


@pytest.mark.parametrize(
    ("mark", "what"),
    [
        ("cluster.lock", "the data directory of a cluster"),
        ("appstat.sqlite", "the data directory of a cluster"),
        ("secrets/accepted", "the data directory of a cluster"),
        ("run/hpgen.lock", "the data directory of a cluster"),
        ("hopyard-backup.json", "a folder of backups"),
    ],
)
def test_code_inside_a_data_directory_is_refused(tmp_path: Path, mark: str, what: str) -> None:
    folder = fill(tmp_path, {"train.py": "", mark: ""})
    with pytest.raises(BundleError, match=f"holds {mark}, so it is {what}; allowed: a folder of code"):
        pack(folder)


def test_data_directories_of_single_services_stay_at_home(tmp_path: Path) -> None:
    folder = fill(tmp_path, {"train.py": "", "proposals/hpgen.address": "", "proposals/log": ""})
    SecretsFolder(folder / "proposals" / "secrets").make()
    fill(
        folder,
        {"a/run/scheduler.lock": "", "a/x": "", "b/run/hpgen.lock": "", "b/x": "", "c/appstat.lock": "", "c/x": ""},
    )
    assert pack(folder).files == ("train.py",)
    assert why_left_out(folder, "proposals/log") == f"{folder / 'proposals'} is the data directory of a cluster"


@pytest.mark.parametrize("lost", [False, True], ids=["whole", "head file lost"])
def test_backups_stay_at_home(tmp_path: Path, lost: bool) -> None:
    folder = fill(tmp_path, {"train.py": "", "old/a.py": ""})
    made = folder / "old" / "backups"
    Target.create(made, "cluster").close()
    fill(made, {"generations/1.json": "tokens", "blobs/ab/abc": "", "databases/d.sqlite": ""})
    if lost:
        (made / HEAD).unlink()
    assert pack(folder).files == ("old/a.py", "train.py")
    assert why_left_out(folder, "old/backups/generations/1.json") == f"{made} is a folder of backups"


@pytest.mark.parametrize("name", ["accepted", "user.token", "node.token", "service.token", "ticket.key"])
def test_the_folder_of_tokens_stays_at_home(tmp_path: Path, name: str) -> None:
    SecretsFolder(tmp_path / "made").make()
    SecretsFolder(tmp_path / "made").ticket_key()
    assert (tmp_path / "made" / name).is_file()
    folder = fill(tmp_path / "code", {"train.py": "", f"lib/secrets/{name}": "", "lib/a.py": ""})
    # With `accepted`, all of `lib` is a data directory.
    assert pack(folder).files == (("train.py",) if name == "accepted" else ("lib/a.py", "train.py"))
    (tmp_path / "made").rename(folder / "copy")
    assert "copy/user.token" not in pack(folder).files
    assert why_left_out(folder, "copy") == f"{folder / 'copy'} is the folder of a cluster's tokens"


def test_folders_with_similar_names_are_packed(tmp_path: Path) -> None:
    files = ("a/accepted", "a/secrets/api.key", "b/user.token", "blobs/x", "generations/1.json", "run/train.py")
    assert pack(fill(tmp_path, dict.fromkeys(files, ""))).files == files


@pytest.mark.parametrize("target", ["data/secrets/user.token", "backups/generations/1.json"])
def test_a_link_to_tokens_is_refused(tmp_path: Path, target: str) -> None:
    folder = fill(
        tmp_path,
        {"train.py": "", "data/cluster.lock": "", "data/secrets/accepted": "", "backups/hopyard-backup.json": ""},
    )
    fill(folder, {target: "token"})
    (folder / "alias.txt").symlink_to(target)
    with pytest.raises(BundleError, match=r"alias\.txt links to .*(of a cluster's tokens|of backups).*\.hopyardignore"):
        pack(folder)


def test_a_folder_over_the_limit_names_its_biggest_files(tmp_path: Path) -> None:
    folder = fill(tmp_path, {f"file-{size}": "x" * size * 1000 for size in range(1, 9)})
    with pytest.raises(BundleTooLarge, match=r"allowed: 0\.0 MB.*file-8 .*file-7 .*file-4 .*\.hopyardignore") as error:
        pack(folder, limit_bytes=30_000)
    assert "file-3" not in str(error.value)
    assert pack(folder, limit_bytes=36_000).files


def test_links_inside_are_followed_and_links_outside_refused(tmp_path: Path) -> None:
    folder = fill(tmp_path / "code", {"real.py": "x"})
    (folder / "alias.py").symlink_to("real.py")
    assert pack(folder).files == ("alias.py", "real.py")
    (folder / "passwords").symlink_to("/etc/passwd")
    with pytest.raises(BundleError, match=r"links to /etc/passwd, outside"):
        pack(folder)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is not a folder"):
        pack(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BundleError, match="neither a file nor a folder"):
        pack(tmp_path)


def hostile(*members: tarfile.TarInfo) -> Bundle:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    data = zstandard.compress(raw.getvalue())
    return Bundle(hashlib.sha256(data).hexdigest(), data, ())


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    return info


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([member("../out.py")], "stay inside"),
        ([member("/etc/x")], "stay inside"),
        ([member("a/../../x")], "stay inside"),
        ([member("a", tarfile.SYMTYPE, link="/etc")], "plain files"),
        ([member("a", tarfile.LNKTYPE, link="b")], "plain files"),
        ([member("a", tarfile.CHRTYPE)], "plain files"),
        ([member("a"), member("a")], "conflicts with an earlier member"),
        ([member("a"), member("a/b")], "conflicts with an earlier member"),
        ([member("big", size=1_100_000_000)], "more than"),
    ],
)
def test_hostile_archives_are_refused_and_leave_nothing(
    tmp_path: Path, members: list[tarfile.TarInfo], reason: str
) -> None:
    if members[0].size:
        bundle = bomb(members[0])
    else:
        bundle = hostile(*members)
    with pytest.raises(BundleError, match=reason):
        unpack(write(tmp_path, bundle), tmp_path / "out", bundle.sha256)
    assert [path.name for path in tmp_path.iterdir()] == ["packed"]


def bomb(info: tarfile.TarInfo) -> Bundle:
    """Return an archive whose header announces a huge member that it does not contain."""
    data = zstandard.compress(info.tobuf())
    return Bundle(hashlib.sha256(data).hexdigest(), data, ())


def test_other_bytes_than_promised_are_refused(tmp_path: Path) -> None:
    bundle = pack(fill(tmp_path / "code", {"a": "x"}))
    file = write(tmp_path, bundle)
    with pytest.raises(BundleCorrupt, match="has the hash"):
        unpack(file, tmp_path / "out", "0" * 64)
    file.write_bytes(b"no archive")
    with pytest.raises(BundleCorrupt, match="is no code bundle"):
        unpack(file, tmp_path / "out", hashlib.sha256(b"no archive").hexdigest())
    with pytest.raises(FileExistsError):
        unpack(file, tmp_path / "code", bundle.sha256)


@pytest.mark.merge
@given(st.binary(max_size=300))
def test_no_bytes_make_anything_but_a_bundle_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    file = folder / "packed"
    file.write_bytes(data)
    with pytest.raises(BundleError):
        unpack(file, folder / "out", hashlib.sha256(data).hexdigest())
    assert not (folder / "out").exists()


def test_the_hash_of_code_is_blind_to_what_is_searched_and_to_nothing_else(tmp_path: Path) -> None:
    search = "space: {lr: {uniform: [0, 1]}}\nmetric: {name: loss}\n"
    files = {"train.py": "x = 1\n", "data.yaml": "classes: 3\n", "search.yaml": search}
    folder = fill(tmp_path / "code", files)
    first = code_hash(pack(folder).data)
    fill(folder, {"search.yaml": search + "stop: {jobs: 3}\n", "another.yml": search})
    assert code_hash(pack(folder).data) == first
    for name, content in (("train.py", "x = 2\n"), ("data.yaml", "classes: 4\n"), ("new.py", ""), ("bad.yaml", "a: [")):
        changed = fill(tmp_path / name, {**files, name: content})
        assert code_hash(pack(changed).data) != first, name
    with pytest.raises(BundleError, match="it is no bundle"):
        code_hash(b"nonsense")
