"""What happens to an order."""

from typing import Any

from shop.celery import app

PRICES = {"tea": 4, "cup": 9, "pot": 25}


class NotPaidError(Exception):
    """The bank said no, for now."""


def reserve(number: int, article: str) -> dict[str, Any]:
    """Takes the article from the shelf."""
    return {"order": number, "article": article, "price": PRICES[article]}


def charge(self: Any, order: dict[str, Any]) -> dict[str, Any]:
    """Asks the bank, which says no to every fifth order at first."""
    if order["order"] % 5 == 0 and self.request.retries == 0:
        raise NotPaidError(order["order"])
    return order | {"paid": True}


def ship(order: dict[str, Any]) -> dict[str, Any]:
    """Sends the parcel."""
    return order | {"shipped": True}


reserve_task = app.task(reserve, name="shop.orders.reserve")
charge_task = app.task(
    charge, name="shop.orders.charge", bind=True, autoretry_for=(NotPaidError,),
    retry_backoff=0.1, max_retries=3,
)  # fmt: skip
ship_task = app.task(ship, name="shop.orders.ship")
