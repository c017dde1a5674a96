"""What the endpoint refuses: each refusal with the code, the status and the sentence of Amazon's.

Clients tell refusals apart by three names for the same thing: the shape in a JSON answer's
`__type`, the code of the Query protocol, which newer clients still show, and the HTTP status. The
table below holds them; the sentences stand in the functions that make a refusal, one for each
situation, so that no other module spells them.
"""

from __future__ import annotations

from penstock.errors import PenstockError

SENDER, RECEIVER = "Sender", "Receiver"

SIMPLE = "AWS.SimpleQueueService."
CODES: dict[str, tuple[str, int]] = {
    "QueueDoesNotExist": (SIMPLE + "NonExistentQueue", 400),
    "QueueNameExists": ("QueueAlreadyExists", 400),
    "QueueDeletedRecently": (SIMPLE + "QueueDeletedRecently", 400),
    "PurgeQueueInProgress": (SIMPLE + "PurgeQueueInProgress", 403),
    "OverLimit": ("OverLimit", 403),
    "ReceiptHandleIsInvalid": ("ReceiptHandleIsInvalid", 400),
    "MessageNotInflight": (SIMPLE + "MessageNotInflight", 400),
    "InvalidAttributeName": ("InvalidAttributeName", 400),
    "InvalidAttributeValue": ("InvalidAttributeValue", 400),
    "InvalidMessageContents": ("InvalidMessageContents", 400),
    "EmptyBatchRequest": (SIMPLE + "EmptyBatchRequest", 400),
    "TooManyEntriesInBatchRequest": (SIMPLE + "TooManyEntriesInBatchRequest", 400),
    "BatchEntryIdsNotDistinct": (SIMPLE + "BatchEntryIdsNotDistinct", 400),
    "InvalidBatchEntryId": (SIMPLE + "InvalidBatchEntryId", 400),
    "BatchRequestTooLong": (SIMPLE + "BatchRequestTooLong", 400),
    "UnsupportedOperation": (SIMPLE + "UnsupportedOperation", 400),
    "InvalidParameterValueException": ("InvalidParameterValue", 400),
    "MissingRequiredParameterException": ("MissingParameter", 400),
    "ResourceNotFoundException": ("ResourceNotFoundException", 404),
    "InvalidAddress": ("InvalidAddress", 404),
    "InvalidAction": ("InvalidAction", 400),
    "NoAction": ("UnknownOperationException", 404),
    "UnknownOperationException": ("InvalidAction", 400),
    "SerializationException": ("MalformedInput", 400),
    "RequestEntityTooLarge": ("RequestEntityTooLarge", 413),
    "RequestTimeout": ("RequestTimeout", 408),
    "AccessDeniedException": ("AccessDenied", 403),
    "MissingAuthenticationTokenException": ("MissingAuthenticationToken", 403),
    "IncompleteSignatureException": ("IncompleteSignature", 400),
    "UnrecognizedClientException": ("InvalidClientTokenId", 403),
    "InvalidSignatureException": ("SignatureDoesNotMatch", 403),
    "InternalFailure": ("InternalFailure", 500),
    "ServiceUnavailable": ("ServiceUnavailable", 503),
}
"""By shape: the code of the Query protocol, and the HTTP status."""


class Refusal(PenstockError):
    """An answer that is an error: what the client gets, and nothing else."""

    shape: str
    message: str
    query_message: str
    code: str
    status: int

    def __init__(self, shape: str, message: str, *, query_message: str | None = None) -> None:
        """With `query_message` the Query protocol says it in other words."""
        super().__init__(message)
        self.shape, self.message = shape, message
        self.query_message = message if query_message is None else query_message
        self.code, self.status = CODES[shape]

    @property
    def fault(self) -> str:
        """Says whose fault the error is: the sender's, or the receiver's, which is ours."""
        return RECEIVER if self.status >= 500 else SENDER

    @property
    def namespace(self) -> str:
        """Where Amazon's clients look the shape up."""
        is_coral = self.shape in {"UnknownOperationException", "SerializationException"}
        return "com.amazon.coral.service" if is_coral else "com.amazonaws.sqs"


def no_queue() -> Refusal:
    """Nobody made a queue of this name."""
    text = "The specified queue does not exist"
    return Refusal("QueueDoesNotExist", f"{text}.", query_message=f"{text} for this wsdl version.")


def missing(name: str) -> Refusal:
    """A parameter that has to be there."""
    return Refusal(
        "MissingRequiredParameterException", f"The request must contain the parameter {name}."
    )


def invalid(text: str) -> Refusal:
    """A parameter that can't be as it is."""
    return Refusal("InvalidParameterValueException", text)


def value(name: str, found: object, reason: str) -> Refusal:
    """The same, in the words that Amazon uses for most of them."""
    return invalid(f"Value {found} for parameter {name} is invalid. Reason: {reason}")


def wrong_type(found: object, wanted: str) -> Refusal:
    """JSON of one kind where another belongs: `wanted` is `a String`, or `an Integer`."""
    if isinstance(found, dict):
        text = "Start of structure or map found where not expected."
    elif isinstance(found, list):
        text = "Start of list found where not expected"
    else:
        kind = "STRING" if isinstance(found, str) else "NUMBER"
        kind = str(found).upper() if isinstance(found, bool) else kind
        text = f"{kind}_VALUE can not be converted to {wanted}"
    return Refusal("SerializationException", text)


def no_arn(name: str) -> Refusal:
    """Text that can't be the name of a queue everywhere."""
    form = "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
    return invalid(f"You must use this format to specify the {name}: {form}")


def no_resource(name: str) -> Refusal:
    """Nobody made a queue of this ARN."""
    text = f"The resource that you specified for the {name} parameter doesn't exist."
    return Refusal("ResourceNotFoundException", text)


def not_this_kind(name: str, found: object) -> Refusal:
    """A parameter of FIFO queues for one that is none, or the other way round."""
    text = "The request include parameter that is not valid for this queue type."
    return value(name, found, text)


def attribute_value(name: str, reason: str = "") -> Refusal:
    """A value that a queue's attribute can't have."""
    more = f" Reason: {reason}" if reason else ""
    return Refusal("InvalidAttributeValue", f"Invalid value for the parameter {name}.{more}")


def attribute_name(name: str) -> Refusal:
    """No attribute of a queue, or not of this kind of queue."""
    return Refusal("InvalidAttributeName", f"Unknown Attribute {name}.")


def no_receipt(handle: str) -> Refusal:
    """Text that no queue of this endpoint gave out."""
    return Refusal(
        "ReceiptHandleIsInvalid",
        f'The input receipt handle "{handle}" is not a valid receipt handle.',
    )


def ended_receipt(handle: str) -> Refusal:
    """A lease of a FIFO queue that has run out."""
    return value("ReceiptHandle", handle, "The receipt handle has expired.")


def gone_message(handle: str) -> Refusal:
    """The message of this receipt was deleted."""
    text = "Message does not exist or is not available for visibility timeout change."
    return value("ReceiptHandle", handle, text)
