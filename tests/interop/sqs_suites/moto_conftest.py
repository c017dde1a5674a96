"""Put beside moto's SQS tests: makes them fit a server that is not moto."""

from __future__ import annotations

import os

import botocore.session
import pytest

ENDPOINT = os.environ["TEST_SERVER_MODE_ENDPOINT"]

NOT_AMAZON = {
    "test_message_retention_period": "three seconds of retention; the least is 60",
    "test_create_queue_with_different_attributes_fail": "FifoQueue='tru' on a standard queue",
    "test_create_fifo_queue_with_dlq": "FifoQueue='false'; Amazon: Unknown Attribute FifoQueue",
    "test_permissions": "policy version 2012-10-17; Amazon's is 2008-10-17",
    "test_remove_permission_errors": "a longer sentence than Amazon's",
    "test_send_messages_to_fifo_without_message_group_id": "a batch is InvalidParameterValue",
    "test_change_message_visibility_on_unknown_receipt_handle": "another sentence than Amazon's",
    "test_delete_message_errors": "another sentence than Amazon's",
    "test_message_with_invalid_attributes": "names that Amazon accepts",
}
"""What these expect, Amazon itself does not do."""


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in items:
        reason = NOT_AMAZON.get(item.originalname)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"moto alone: {reason}"))


@pytest.fixture
def account_id() -> str:
    return "123456789012"


@pytest.fixture(autouse=True)
def no_queues() -> None:
    session = botocore.session.get_session()
    for region in ("us-east-1", "us-west-1", "us-west-2"):
        client = session.create_client("sqs", region_name=region, endpoint_url=ENDPOINT)
        for url in client.list_queues().get("QueueUrls", []):
            client.delete_queue(QueueUrl=url)
