//! Asking a queue whether it can hold a message, before a byte is written.

use pyo3::prelude::*;

use crate::append::Writer;
use crate::limits::refuse_large;
use crate::message::Message;

#[pymethods]
impl Writer {
    /// Why the queue can't hold `message`; none when it can.
    fn refusal(&self, py: Python<'_>, message: &Message) -> Option<String> {
        let draft = message.draft();
        let most = self.max_message_bytes.load(std::sync::atomic::Ordering::Relaxed);
        refuse_large(&draft, most)
            .and_then(|()| self.current(py).frames().measure(&draft).map(drop))
            .err()
    }
}
