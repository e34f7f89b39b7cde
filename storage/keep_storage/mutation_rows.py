"""Typed access to mutations, approvals and items. Decides nothing; only the operations call what writes."""

from keep_storage.model import Approval, Item, Json, Mutation
from keep_storage.records import as_params, find, find_all, find_by_id, one_or_all
from keep_storage.transaction import Queries, Transaction


def mutation(q: Queries, mutation_id: str) -> Mutation | None:
    return find_by_id(q, Mutation, "mutation_by_id", mutation_id)


def mutation_by_identity(q: Queries, identity_key: str) -> Mutation | None:
    return find(q, Mutation, "mutation_by_identity", {"identity_key": identity_key})


def mutation_of_older_identity(q: Queries, item: Item, connector: str, method: str, params: Json) -> Mutation | None:
    """A call of this method in this attempt at the item, from before subkeys were kept; the same words first."""
    key = as_params(item) | {"connector": connector, "method": method, "params": params}
    return find(q, Mutation, "mutation_of_older_identity", key)


def insert_mutation(tx: Transaction, mutation: Mutation) -> bool:
    """False if there is already a mutation with this id."""
    is_new = tx.one("insert_mutation", as_params(mutation)) is not None
    if is_new:
        tx.kept.keep(mutation)
    return is_new


def save_mutation(tx: Transaction, mutation: Mutation) -> None:
    tx.run("save_mutation", as_params(mutation))
    tx.kept.keep(mutation)


def unsettled_mutation_of_run(q: Queries, run_id: str) -> Mutation | None:
    return find(q, Mutation, "unsettled_mutation_of_run", {"run_id": run_id})


def unsettled_mutation_of_item(q: Queries, item: Item) -> Mutation | None:
    return find(q, Mutation, "unsettled_mutation_of_item", as_params(item))


def calls_left_in_doubt(q: Queries, workflow_id: str | None) -> list[Mutation]:
    return find_all(q, Mutation, "calls_left_in_doubt", one_or_all(workflow_id))


def approval(q: Queries, approval_id: str) -> Approval | None:
    return find(q, Approval, "approval_by_id", {"id": approval_id})


def open_approval(q: Queries, mutation_id: str) -> Approval | None:
    return find(q, Approval, "open_approval", {"mutation_id": mutation_id})


def open_approvals(q: Queries, workflow_id: str) -> list[Approval]:
    return find_all(q, Approval, "open_approvals_of_workflow", {"workflow_id": workflow_id})


def insert_approval(tx: Transaction, approval: Approval) -> bool:
    """False if there is already an approval with this id."""
    return tx.one("insert_approval", as_params(approval)) is not None


def decide_approval(tx: Transaction, approval: Approval) -> None:
    tx.run("decide_approval", as_params(approval))


# Items.


def item(q: Queries, workflow_id: str, item_id: str) -> Item | None:
    """The current attempt."""
    return find(q, Item, "latest_item", {"workflow_id": workflow_id, "item_id": item_id})


def open_item(q: Queries, run_id: str) -> Item | None:
    return find(q, Item, "open_item_of_run", {"run_id": run_id})


def save_item(tx: Transaction, item: Item) -> None:
    tx.run("save_item", as_params(item))


def record_item_run(tx: Transaction, item: Item) -> None:
    tx.run("record_item_run", as_params(item))
