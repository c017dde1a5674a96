//! After a power cut the queue may end before messages that were already handed out.

use pyo3::prelude::*;

use super::PyGroup;
use super::table::{Entry, at};

#[pymethods]
impl PyGroup {
    /// The queue ends at `tail`: what is known of messages behind it is forgotten and reading goes
    /// on there. What is out below it stays out, what was acked there stays acked.
    fn cut(&self, py: Python<'_>, tail: u64) -> PyResult<()> {
        let group = &*self.0;
        let held = group.take(py)?;
        let known = group.table.outstanding().filter_map(|index| group.table.entry(index));
        let kept: Vec<Entry> = known.filter(|entry| entry.offset < tail).collect();
        let (next, replayed) = (group.table.wide(at::NEXT), group.replayed_next());
        if next > tail {
            // By the journal, where that ends before: the word of a group that acks by getting is
            // in no record until the next sync, and may be damaged.
            group.table.set_wide(at::NEXT, replayed.unwrap_or(tail).min(tail));
        }
        group.table.clear();
        for entry in &kept {
            group.table.enter(entry)?;
        }
        group.table.move_cursor();
        group.checkpoint()?;
        group.mirror()?;
        drop(held);
        Ok(())
    }
}
