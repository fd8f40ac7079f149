"""The inbox: nothing is lost, nothing is taken twice, and what is no task is put aside with the reason."""

from __future__ import annotations

import os
import time

import anyio
import anyio.to_thread
import pytest

from lmagent.core.errors import StoreError
from lmagent.schedule.inbox import AT_A_LOOK, HELD, LARGEST, Claimed, Inbox

NOW = time.time()


def taken(inbox: Inbox, now: float | None = None) -> list[str | None]:
    claimed, _ = inbox.claim(now if now is not None else time.time() + 10)
    return sorted(str(inbox.read(item)) for item in claimed)


def test_a_task_is_submitted_claimed_read_and_done(tmp_path):
    inbox = Inbox(tmp_path)
    path = inbox.submit("Grüße the world\n", NOW)
    assert path.parent == inbox.folder
    (claimed,), problems = inbox.claim(NOW)
    assert not problems
    assert not path.exists()
    assert claimed.path.name.startswith(f"{claimed.session}~")
    assert claimed.job == f"inbox:{claimed.path.name}"
    assert inbox.of_job(claimed.job) == claimed
    assert inbox.read(claimed) == "Grüße the world"
    assert inbox.claim(NOW)[0] == [claimed], "it stays until it is done"
    inbox.done(claimed)
    assert inbox.claim(NOW) == ([], [])
    assert inbox.read(claimed) is None


@pytest.mark.long
def test_a_thousand_tasks_submitted_at_one_moment_are_a_thousand_files(tmp_path):
    inbox = Inbox(tmp_path)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(1000):
                tasks.start_soon(anyio.to_thread.run_sync, inbox.submit, f"task {number}", NOW)

    anyio.run(main)
    claimed: list[Claimed] = []
    for look in range(1, 11):
        claimed, _ = inbox.claim(NOW)
        assert len(claimed) == look * AT_A_LOOK, "a look is over soon, however much there is"
    inbox.submit("one too many", NOW)
    assert len(inbox.claim(NOW)[0]) == HELD
    assert len({item.session for item in claimed}) == 1000
    assert {inbox.read(item) for item in claimed} == {f"task {number}" for number in range(1000)}


def test_of_two_schedulers_one_gets_a_task(tmp_path):
    first, second = Inbox(tmp_path), Inbox(tmp_path)
    for number in range(50):
        first.submit(f"task {number}", NOW)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for inbox in (first, second) * 4:
                tasks.start_soon(anyio.to_thread.run_sync, inbox.claim, NOW)

    anyio.run(main)
    assert len(first.claim(NOW)[0]) == 50


def test_a_file_of_another_program_is_taken_once_it_is_whole(tmp_path):
    inbox = Inbox(tmp_path)
    inbox.folder.mkdir()
    (inbox.folder / "1700000000.task").write_text("an old one")
    assert taken(inbox, time.time()) == []
    assert taken(inbox) == ["an old one"]


@pytest.mark.parametrize("name", ["fix_the_bug.task", "20260101_120000_abcdef.task"])
def test_a_name_like_our_own_does_not_make_a_file_whole(tmp_path, name):
    inbox = Inbox(tmp_path)
    inbox.folder.mkdir()
    (inbox.folder / name).write_text("half a ta")
    assert taken(inbox, time.time()) == []


def test_the_same_name_twice_is_two_tasks(tmp_path):
    inbox = Inbox(tmp_path)
    inbox.folder.mkdir()
    for text in ("first", "second"):
        (inbox.folder / "nightly.task").write_text(text)
        taken(inbox)
    assert taken(inbox) == ["first", "second"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b"\xff\xfe", "it is not UTF-8"),
        (b"a\0b", "it holds binary data"),
        (b"x" * (LARGEST + 1), "more than 1,000,000 bytes"),
    ],
)
def test_what_cannot_be_a_task_is_put_aside_with_the_reason(tmp_path, content, why):
    inbox = Inbox(tmp_path)
    inbox.folder.mkdir()
    (inbox.folder / "bad.task").write_bytes(content)
    inbox.submit("good", NOW)
    claimed, _ = inbox.claim(time.time() + 10)
    said: list[str] = []
    for item in claimed:
        try:
            said.append(str(inbox.read(item)))
        except StoreError as refusal:
            said.append(refusal.message)
    assert "good" in said
    assert any(why in text for text in said)
    (kept,) = (inbox.folder / "failed").iterdir()
    assert kept.read_bytes() == content


def test_a_link_a_folder_and_a_pipe_are_no_tasks_and_are_put_aside(tmp_path):
    inbox = Inbox(tmp_path / "home")
    inbox.folder.mkdir(parents=True)
    (tmp_path / "secret").write_text("a secret")
    (inbox.folder / "link.task").symlink_to(tmp_path / "secret")
    (inbox.folder / "folder.task").mkdir()
    os.mkfifo(inbox.folder / "pipe.task")
    claimed, problems = inbox.claim(time.time())
    assert claimed == []
    assert len(problems) == 3
    assert all("no regular file" in problem for problem in problems)
    assert len(list((inbox.folder / "failed").iterdir())) == 3
    assert (tmp_path / "secret").read_text() == "a secret"


def test_a_stray_file_is_left_alone_for_a_while_and_then_put_aside(tmp_path):
    inbox = Inbox(tmp_path)
    inbox.folder.mkdir()
    (inbox.folder / "draft.tmp").write_text("being written")
    (inbox.folder / ".hidden").write_text("not ours")
    assert inbox.claim(time.time()) == ([], [])
    _, (problem,) = inbox.claim(time.time() + 100)
    assert "its name does not end in .task" in problem
    assert (inbox.folder / ".hidden").exists()


def test_a_foreign_file_among_the_claimed_is_put_aside(tmp_path):
    inbox = Inbox(tmp_path)
    (inbox.folder / "claimed").mkdir(parents=True)
    (inbox.folder / "claimed" / "odd.task").write_text("who put me here")
    claimed, (problem,) = inbox.claim(time.time())
    assert claimed == []
    assert "nothing here has claimed it" in problem


def test_a_name_of_any_length_and_any_characters_is_taken(tmp_path):
    inbox = Inbox(tmp_path)
    inbox.folder.mkdir()
    (inbox.folder / f"{'ü' * 120}.task").write_text("long")
    (inbox.folder / "a b\n~'\".task").write_text("odd")
    assert taken(inbox) == ["long", "odd"]


def test_a_link_in_the_place_of_the_inbox_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "inbox").symlink_to(tmp_path / "elsewhere")
    inbox = Inbox(tmp_path / "home")
    with pytest.raises(StoreError, match="symbolic link"):
        inbox.submit("x", NOW)
    with pytest.raises(StoreError, match="symbolic link"):
        inbox.claim(NOW)


@pytest.mark.parametrize("task", ["", "  \n", "x" * (LARGEST + 1)])
def test_a_task_that_is_none_is_refused_and_leaves_nothing(tmp_path, task):
    inbox = Inbox(tmp_path)
    with pytest.raises(StoreError):
        inbox.submit(task, NOW)
    assert not inbox.folder.exists()


@pytest.mark.parametrize("job", ["inbox:../../x~y.task", "inbox:x.task", "cron:a:1", "inbox:", "inbox:~x.task"])
def test_a_job_that_is_none_of_ours_names_no_file(tmp_path, job):
    found = Inbox(tmp_path).of_job(job)
    assert found is None or found.path.parent == tmp_path / "inbox" / "claimed"
