//! Messages that are done, whose objects the next ones get.

use pyo3::prelude::*;

use crate::message::Message;
use crate::sys::reuse::Alone;

/// The last messages that were handed out one by one. Two: who says `message = group.get()` has
/// one until the next is there.
#[derive(Default)]
pub struct Kept([Option<Py<Message>>; 2]);

impl Kept {
    /// Takes out one that nobody has any more.
    #[inline(always)]
    pub fn take(&mut self, py: Python<'_>) -> Option<Alone<Message>> {
        self.0.iter_mut().find_map(|kept| Alone::take(kept, py))
    }

    /// Keeps one that is handed out; answers the one that has to go for it.
    #[inline(always)]
    pub fn keep(&mut self, message: Py<Message>) -> Option<Py<Message>> {
        let [last, before] = &mut self.0;
        match last {
            None => last.replace(message),
            Some(_) => before.replace(std::mem::replace(last.as_mut()?, message)),
        }
    }
}
