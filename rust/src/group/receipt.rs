//! Proof of a lease.

use std::sync::Arc;

use pyo3::prelude::*;

use super::Group;

/// Names one handing-out of one message: a later one has another token.
pub struct Receipt {
    /// The group that handed it out.
    pub group: Arc<Group>,
    /// Its place in the table.
    pub entry: u32,
    /// Which handing-out.
    pub token: u64,
    /// The message.
    pub offset: u64,
    /// How often it was handed out, this time included.
    pub receives: u32,
}

impl Receipt {
    /// How often it was handed out.
    pub fn receives(&self) -> u32 {
        self.receives
    }

    /// As text, to be given back later, also in another process.
    pub fn text(&self) -> String {
        format!("{:x}-{:x}-{:x}", self.entry, self.token, self.offset)
    }

    /// Entry, token and offset from a text.
    pub fn parse(text: &str) -> Option<(u32, u64, u64)> {
        let mut parts = text.split('-');
        let entry = u32::from_str_radix(parts.next()?, 16).ok()?;
        let token = u64::from_str_radix(parts.next()?, 16).ok()?;
        let offset = u64::from_str_radix(parts.next()?, 16).ok()?;
        parts.next().is_none().then_some((entry, token, offset))
    }

    /// Done.
    pub fn ack(&self, py: Python<'_>) -> PyResult<()> {
        self.group.ack(py, self.entry, self.token, self.offset)
    }

    /// Again, after `delay_s`.
    pub fn nack(&self, py: Python<'_>, delay_s: f64) -> PyResult<()> {
        self.group.nack(py, self.entry, self.token, self.offset, delay_s)
    }

    /// Acks or gives back, if the lease still runs.
    pub fn settle(&self, py: Python<'_>, done: bool) -> PyResult<()> {
        let runs = || self.group.is_leased(py, self.entry, self.token, self.offset);
        if !runs()? {
            return Ok(());
        }
        let settled = if done { self.ack(py) } else { self.nack(py, 0.0) };
        // It may have ended between the two.
        settled.or_else(|error| if runs()? { Err(error) } else { Ok(()) })
    }

    /// Longer.
    pub fn extend(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        self.group.extend(py, self.entry, self.token, self.offset, seconds)
    }
}
