"""The first work of a runtime: settle what a dead process left behind."""

from keep_actors.host.host import Host
from keep_actors.run import reconcile
from keep_actors.run.missing import missing_methods
from keep_actors.telemetry.news import tell
from keep_storage import reads
from keep_storage.operations import ClearWorkflowError
from keep_storage.recovery import assert_no_orphaned_reserved_events, recovery


async def recover(host: Host) -> None:
    """Settle the work of a dead process, check that no event is orphaned, and retry calls whose connector is back."""
    settle = recovery()
    tell(settle, await host.storage.apply(settle))
    await host.reading.read(assert_no_orphaned_reserved_events)
    await _clear_errors(host)
    await _reconcile_again(host)


async def _clear_errors(host: Host) -> None:
    """Clear the error of a workflow that waits for a missing method, if it can be called now."""
    for workflow in await host.reading.read(reads.workflows_in_error):
        missing = missing_methods(workflow.error_about)
        # One of several is enough: the next run says which are missing still.
        if back := [name for name in missing if host.catalog.get(name) is not None]:
            clear = ClearWorkflowError(workflow.id, by="runtime", why=f"{', '.join(back)} can be called again")
            tell(clear, await host.storage.apply(clear))


async def _reconcile_again(host: Host) -> None:
    """Look for the outcome of calls that no connector could be asked about, if one can be asked now."""
    for doubt in await host.reading.read(reads.doubts):
        method = host.catalog.get(f"{doubt.connector}.{doubt.method}")
        if reconcile.NO_CONNECTOR in doubt.error and method is not None and method.reconcilable:
            again = reconcile.ask_again(doubt, host.time.now())
            tell(again, await host.storage.apply(again))
