"""What the shop did."""

from typing import Any

from shop.celery import app


def day(orders: list[dict[str, Any]]) -> dict[str, int]:
    """Adds up the orders of a day."""
    return {"orders": len(orders), "income": sum(order["price"] for order in orders)}


day_task = app.task(day, name="shop.reports.day")
