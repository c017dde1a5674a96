"""`python -m shop 20`: twenty orders at once, then the report."""

import sys
from itertools import cycle, islice

from celery import chain, chord

from shop.orders import PRICES, charge_task, reserve_task, ship_task
from shop.reports import day_task


def main(count: int) -> None:
    articles = islice(cycle(PRICES), count)
    orders = [
        chain(reserve_task.s(number, article), charge_task.s(), ship_task.s())
        for number, article in enumerate(articles)
    ]
    result = chord(orders)(day_task.s())
    print("placed", count, "orders")
    print("report:", result.get(timeout=120))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
