"""A small shop. `celery -A shop worker` finds `app` here."""

from shop.celery import app

__all__ = ["app"]
