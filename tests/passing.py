"""A database in front of another one: a test changes the step that it is about, and the rest passes through."""

from keep_storage.transaction import Database, Queries, Reader, Transaction


class PassingDatabase:
    """Hands every step to the database behind it."""

    def __init__(self, behind: Database) -> None:
        self._database = behind

    def begin(self) -> Transaction:
        return self._database.begin()

    def commit(self) -> None:
        self._database.commit()

    def rollback(self) -> None:
        self._database.rollback()

    def queries(self) -> Queries:
        return self._database.queries()

    def reader(self) -> Reader:
        return self._database.reader()

    def close(self) -> None:
        self._database.close()
