"""Public: the items of jobs as `Keep` returns them."""

from keep_actors.api.item_views import ItemAttempt, ItemHistory, ItemView

__all__ = ["ItemAttempt", "ItemHistory", "ItemView"]
