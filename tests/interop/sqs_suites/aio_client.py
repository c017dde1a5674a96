"""aiobotocore against the endpoint that the environment names. Run by itself."""

from __future__ import annotations

import asyncio

from aiobotocore.session import get_session


async def main() -> None:
    async with get_session().create_client("sqs") as sqs:
        queue = (await sqs.create_queue(QueueName="aio"))["QueueUrl"]
        waiting = asyncio.ensure_future(sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20))
        await sqs.send_message(QueueUrl=queue, MessageBody="hello")
        (found,) = (await waiting)["Messages"]
        assert found["Body"] == "hello"
        await sqs.delete_message(QueueUrl=queue, ReceiptHandle=found["ReceiptHandle"])
        assert "Messages" not in await sqs.receive_message(QueueUrl=queue)
    print("aiobotocore: every call answered as expected")


if __name__ == "__main__":
    asyncio.run(main())
