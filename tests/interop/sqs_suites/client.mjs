// The JavaScript SDK, which compares every digest: `node client.mjs`, with the endpoint in the environment.
import assert from "node:assert";
import {
  CreateQueueCommand, DeleteMessageCommand, ReceiveMessageCommand, SendMessageBatchCommand,
  SendMessageCommand, SQSClient,
} from "@aws-sdk/client-sqs";

const client = new SQSClient({ endpoint: process.env.AWS_ENDPOINT_URL_SQS, region: "us-east-1" });
const { QueueUrl } = await client.send(new CreateQueueCommand({ QueueName: "javascript" }));
await client.send(new SendMessageCommand({
  QueueUrl,
  MessageBody: "grüße <&> \r\n",
  MessageAttributes: {
    city: { DataType: "String", StringValue: "Köln" },
    raw: { DataType: "Binary", BinaryValue: new Uint8Array([0, 1, 255]) },
  },
}));
await client.send(new SendMessageBatchCommand({
  QueueUrl,
  Entries: [{ Id: "a", MessageBody: "1" }, { Id: "b", MessageBody: "2" }],
}));
const { Messages } = await client.send(new ReceiveMessageCommand({
  QueueUrl, MaxNumberOfMessages: 10, MessageAttributeNames: ["All"],
}));
assert.deepStrictEqual(Messages.map((one) => one.Body), ["grüße <&> \r\n", "1", "2"]);
assert.deepStrictEqual([...Messages[0].MessageAttributes.raw.BinaryValue], [0, 1, 255]);
for (const { ReceiptHandle } of Messages) {
  await client.send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle }));
}
const empty = await client.send(new ReceiveMessageCommand({ QueueUrl }));
assert.strictEqual(empty.Messages, undefined);
console.log("javascript: every call answered as expected");
