//! Asking a queue whether it can hold a message, before a byte is written.

use pyo3::prelude::*;

use crate::append::Writer;
use crate::message::Message;

#[pymethods]
impl Writer {
    /// Why the queue can't hold `message`; none when it can.
    fn refusal(&self, py: Python<'_>, message: &Message) -> Option<String> {
        let draft = message.draft();
        let (len, most) =
            (draft.body.len(), self.max_message_bytes.load(std::sync::atomic::Ordering::Relaxed));
        if len > most {
            return Some(format!("the body has {len} bytes, max_message_bytes is {most}"));
        }
        self.current(py).frames().measure(&draft).err()
    }
}
