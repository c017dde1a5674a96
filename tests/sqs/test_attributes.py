"""Attributes of a queue that SQS refuses are refused as there, with what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from tests.sqs.speaking import Json, Refused

Make = Callable[..., str]
ARN = "arn:aws:sqs:us-east-1:000000000000:dead"
DEAD = {"deadLetterTargetArn": ARN, "maxReceiveCount": 3}


def refusal(client: Json, url: str, given: Mapping[str, object], status: int = 400) -> str:
    with pytest.raises(Refused) as refused:
        client("SetQueueAttributes", QueueUrl=url, Attributes=given)
    assert refused.value.status == status
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VisibilityTimeout", "soon"), ("VisibilityTimeout", "43201"), ("DelaySeconds", "-1"),
        ("VisibilityTimeout", None), ("SqsManagedSseEnabled", "maybe"),
        ("Policy", "no json"), ("Policy", "[]"), ("Policy", "[" * 100_000),
        ("RedriveAllowPolicy", "no json"), ("RedriveAllowPolicy", "{}"),
        ("RedriveAllowPolicy", '{"redrivePermission": "byQueue", "sourceQueueArns": "one"}'),
    ],
)  # fmt: skip
def test_a_value_that_can_not_be_is_refused(
    name: str, value: object, json_client: Json, make_json: Make
) -> None:
    assert name in refusal(json_client, make_json(), {name: value})


@pytest.mark.parametrize("name", ["Wishes", "QueueArn", "DeduplicationScope"])
def test_an_attribute_that_can_not_be_set_is_refused(
    name: str, json_client: Json, make_json: Make
) -> None:
    assert name in refusal(json_client, make_json(), {name: "queue"})


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("no json", "not a valid JSON map"),
        ("[1]", "not a valid JSON map"),
        (json.dumps({"deadLetterTargetArn": ARN}), "maxReceiveCount"),
        (json.dumps({"maxReceiveCount": 3}), "deadLetterTargetArn"),
        (json.dumps({**DEAD, "maxReceiveCount": 0}), "from 1 to 1000"),
        (json.dumps({**DEAD, "maxReceiveCount": "many"}), "from 1 to 1000"),
        (json.dumps({**DEAD, "deadLetterTargetArn": "dead"}), "fully qualified ARN"),
        (json.dumps({**DEAD, "deadLetterTargetArn": 7}), "fully qualified ARN"),
    ],
)
def test_a_redrive_policy_that_can_not_be_says_why(
    policy: str, why: str, json_client: Json, make_json: Make
) -> None:
    assert why in refusal(json_client, make_json(), {"RedrivePolicy": policy})


@pytest.mark.parametrize(
    ("permission", "arns", "why"),
    [
        ("denyAll", [ARN], "must set redrivePermission to byQueue"),
        ("byQueue", [], "must also specify one or more"),
        ("byQueue", [f"{ARN}-{number}" for number in range(11)], "maximum number of source queue"),
    ],
)
def test_a_permission_that_contradicts_itself_says_how(
    permission: str, arns: list[str], why: str, json_client: Json, make_json: Make
) -> None:
    policy = json.dumps({"redrivePermission": permission, "sourceQueueArns": arns})
    assert why in refusal(json_client, make_json(), {"RedriveAllowPolicy": policy})


def test_a_policy_of_too_many_statements_is_over_the_limit(
    json_client: Json, make_json: Make
) -> None:
    policy = json.dumps({"Statement": [{}] * 50})
    assert "50 statements" in refusal(json_client, make_json(), {"Policy": policy}, 403)


def test_two_ways_to_encrypt_at_once_are_refused(json_client: Json, make_json: Make) -> None:
    both = {"KmsMasterKeyId": "alias/mine", "SqsManagedSseEnabled": "true"}
    assert "one type of server-side encryption" in refusal(json_client, make_json(), both)


def test_what_can_be_is_kept_as_it_was_given(json_client: Json, make_json: Make) -> None:
    url = make_json()
    allow = json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [ARN]})
    given = {
        "Policy": json.dumps({"Statement": []}), "RedriveAllowPolicy": allow,
        "VisibilityTimeout": "+040", "SqsManagedSseEnabled": "FALSE",
    }  # fmt: skip
    json_client("SetQueueAttributes", QueueUrl=url, Attributes=given)
    found = json_client("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])["Attributes"]
    kept = {name: found[name] for name in given}
    assert kept == given | {"VisibilityTimeout": "40", "SqsManagedSseEnabled": "false"}
