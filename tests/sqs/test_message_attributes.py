"""Attributes of a message that SQS refuses are refused as there, with what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sqs.speaking import Json, Refused

Make = Callable[..., str]
TEXT = {"DataType": "String", "StringValue": "x"}


def refusal(client: Json, url: str, **words: Any) -> str:
    with pytest.raises(Refused) as refused:
        client("SendMessage", QueueUrl=url, MessageBody="b", **words)
    assert refused.value.status == 400
    return str(refused.value)


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ([], "must be a map"),
        ({"a": "text"}, "non-empty data type"),
        ({"a": {"StringValue": "x"}}, "non-empty data type"),
        ({"a": {"DataType": 7, "StringValue": "x"}}, "non-empty data type"),
        ({"a": {"DataType": "Text", "StringValue": "x"}}, "invalid message attribute type"),
        ({"a": {"DataType": "String." + "t" * 300, "StringValue": "x"}}, "type must be shorter"),
        ({"a": {"DataType": "String"}}, "non-empty value of type 'String'"),
        ({"a": {"DataType": "String", "StringValue": 7}}, "must be text"),
        ({"a": {"DataType": "String", "StringValue": "\x00"}}, "characters"),
        ({"a": {"DataType": "Number", "StringValue": "many"}}, "to a number"),
        ({"a": {"DataType": "Binary"}}, "non-empty value of type 'Binary'"),
        ({"a": {"DataType": "Binary", "BinaryValue": "?"}}, "not base64"),
        ({"": TEXT}, "non-empty message (user) attribute names"),
        ({"n" * 300: TEXT}, "name must be shorter"),
        ({"AWS.mine": TEXT}, "reserved"),
        ({"a..b": TEXT}, "successive periods"),
        ({f"a{number}": TEXT for number in range(11)}, "exceeds the allowed maximum"),
    ],
)
def test_an_attribute_that_can_not_be_is_refused(
    attributes: object, why: str, json_client: Json, make_json: Make
) -> None:
    assert why in refusal(json_client, make_json(), MessageAttributes=attributes)


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({"Mine": TEXT}, "name 'Mine' is invalid"),
        ({"AWSTraceHeader": {"DataType": "Number", "StringValue": "1"}}, "data type 'String'"),
    ],
)
def test_of_amazon_s_own_attributes_only_the_trace_header_is_known(
    attributes: object, why: str, json_client: Json, make_json: Make
) -> None:
    assert why in refusal(json_client, make_json(), MessageSystemAttributes=attributes)
