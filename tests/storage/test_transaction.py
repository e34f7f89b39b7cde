"""What a driver must do. With these and the rest of the suite green, the execution model runs on it."""

import pytest

from keep_storage.transaction import Database, Transaction

NOW = 1_700_000_000_000


def insert(tx: Transaction, workflow_id: str) -> None:
    row = {
        "id": workflow_id,
        "name": "näme 🙂",
        "timezone": "UTC",
        "status": "draft",
        "maintenance": False,
        "created_at": NOW,
        "updated_at": NOW,
        "owner": "",
    }
    tx.run("insert_workflow", row)


def names(database: Database) -> list[str]:
    return [row[0] for row in database.queries().all("all_workflows", {})]


def test_what_is_committed_is_there(database: Database) -> None:
    insert(database.begin(), "wf_1")
    database.commit()
    assert names(database) == ["wf_1"]


def test_what_is_rolled_back_is_not(database: Database) -> None:
    insert(database.begin(), "wf_1")
    database.rollback()
    assert names(database) == []


def test_rolling_back_without_a_transaction_is_nothing(database: Database) -> None:
    database.rollback()
    insert(database.begin(), "wf_1")
    database.commit()
    assert names(database) == ["wf_1"]


def test_undo_forgets_what_came_after_the_savepoint_and_nothing_else(database: Database) -> None:
    tx = database.begin()
    tx.savepoint()
    insert(tx, "wf_1")
    tx.release()
    tx.savepoint()
    insert(tx, "wf_2")
    tx.undo()
    tx.savepoint()
    insert(tx, "wf_3")
    tx.release()
    database.commit()
    assert names(database) == ["wf_1", "wf_3"]


def test_a_statement_that_fails_leaves_the_transaction_usable_after_undo(database: Database) -> None:
    tx = database.begin()
    insert(tx, "wf_1")
    tx.savepoint()
    with pytest.raises(Exception, match=r"(?i)unique"):
        insert(tx, "wf_1")
    tx.undo()
    insert(tx, "wf_2")
    database.commit()
    assert names(database) == ["wf_1", "wf_2"]


def test_one_gives_the_row_or_nothing(database: Database) -> None:
    tx = database.begin()
    insert(tx, "wf_1")
    row = tx.one("workflow_by_id", {"id": "wf_1"})
    assert row is not None
    assert row[:4] == ("wf_1", "näme 🙂", "UTC", "draft")
    assert tx.one("workflow_by_id", {"id": "wf_none"}) is None
    database.rollback()


def test_a_statement_with_returning_says_whether_it_wrote(database: Database) -> None:
    tx = database.begin()
    insert(tx, "wf_1")
    tx.run("declare_topic", {"workflow_id": "wf_1", "name": "mail", "consumer": None, "ordering": None})
    event = {
        "id": "evt_1",
        "topic_id": 1,
        "message_id": "m1",
        "title": "t",
        "payload": "{}",
        "ordering_key": None,
        "created_by_run_id": None,
        "has_cause": False,
        "now": NOW,
    }
    assert tx.one("publish_event", event) == ("evt_1",)
    assert tx.one("publish_event", event) is None, "the same again writes nothing"
    assert tx.one("publish_event", event | {"title": "new"}) == ("evt_1",)
    database.rollback()


def test_names_that_a_statement_does_not_use_are_ignored(database: Database) -> None:
    assert database.queries().one("workflow_by_id", {"id": "wf_1", "unused": object()}) is None


def test_a_reader_sees_commits_and_keeps_a_snapshot(database: Database) -> None:
    reader = database.reader()
    insert(database.begin(), "wf_1")
    database.commit()
    with reader.snapshot():
        assert len(reader.all("all_workflows", {})) == 1
    reader.close()


def test_large_numbers_come_back_whole(database: Database) -> None:
    tx = database.begin()
    insert(tx, "wf_1")
    tx.run("insert_session", {"id": "ses_1", "workflow_id": "wf_1", "trigger": "", "started_at": 2**53 + 1})
    row = tx.one("session_by_id", {"id": "ses_1"})
    assert row is not None
    assert row[3] == 2**53 + 1
    database.rollback()
