//! How a format's end becomes visible, and our own format's way to do it.

use std::sync::Arc;

use pyo3::prelude::*;

use super::Segment;

/// How a format's end becomes visible to those who read its own files.
pub trait Publish: Send + Sync {
    /// The frames of `[first, end)` are in place; make them part of the queue.
    fn publish(&self, segment: &Segment, batch: &Batch) -> std::io::Result<()>;

    /// The same where every append is synced at once and came by a write call: a store through
    /// memory would have the sync write all that the kernel keeps in one piece with its page.
    fn publish_by_write(&self, segment: &Segment, batch: &Batch) -> std::io::Result<()> {
        self.publish(segment, batch)
    }

    /// Whether frames are whole as they are written, one by one, with nothing that shows a batch
    /// together: at durability `always` its first word is then written between two syncs.
    fn is_first_word(&self) -> bool {
        false
    }

    /// Whether the format's end is a word of its own that must not reach the disk before the
    /// frames: at durability `always` it is then published by the sync, between two syncs.
    fn is_word(&self) -> bool {
        false
    }

    /// The same for a word, by a sync, when there is more behind it already: frames, an end that
    /// was published further on, another segment. None of that may be undone. Whether the word was
    /// stored.
    fn publish_behind(&self, _segment: &Segment, _batch: &Batch) -> std::io::Result<bool> {
        Ok(false)
    }

    /// Syncs what `publish` stored, where that is another file than the segment.
    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    /// A new segment begins at `base`, and `old` has ended at `batch.end`. Its name is in place and
    /// nobody was told yet. Where every put is synced, its frames are on the disk. Whether a word
    /// that is the format's end was stored.
    fn begin(&self, _old: &Segment, _batch: &Batch, _base: u64) -> std::io::Result<bool> {
        Ok(false)
    }

    /// The end as the format's own file has it, where other programs may move it too:
    /// an append and a wait look here, and the store follows (`Store.follow`).
    fn foreign_end(&self) -> Option<u64> {
        None
    }

    /// The frames below `batch.end` are on the disk: makes the format's own end durable too. Under
    /// the sync lock.
    fn synced(&self, _segment: &Segment, _batch: &Batch) -> std::io::Result<()> {
        self.sync()
    }

    /// An appender died: nothing at or above `batch.end` counts. Bytes up to `reserved` may have
    /// been touched. Whether a word that is the format's end was stored.
    fn drop_above(&self, segment: &Segment, batch: &Batch, reserved: u64) -> std::io::Result<bool>;
}

/// What one append added.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// Offset of the first message.
    pub first: u64,
    /// Offset after the last frame.
    pub end: u64,
    /// The first frame's size word, held back until now.
    pub first_word: u32,
    /// Number of the message after the last one.
    pub next_number: u64,
    /// The largest timestamp in it.
    pub now_ns: i64,
}

/// Our own end: the first frame's size word, stored last and with release order.
pub struct SizeWord;

impl Publish for SizeWord {
    fn publish(&self, segment: &Segment, batch: &Batch) -> std::io::Result<()> {
        segment.publish_word(batch.first, batch.first_word);
        Ok(())
    }

    fn publish_by_write(&self, segment: &Segment, batch: &Batch) -> std::io::Result<()> {
        segment.write_word(batch.first, batch.first_word)
    }

    fn drop_above(&self, segment: &Segment, batch: &Batch, reserved: u64) -> std::io::Result<bool> {
        segment.zero(batch.end, reserved);
        Ok(false)
    }
}

/// How an end is published, as Python hands it around.
#[pyclass(frozen, module = "penstock._core", name = "Publish")]
pub struct PyPublish(pub Arc<dyn Publish>);

#[pymethods]
impl PyPublish {
    /// The end as the format's own file has it; none where only we move it.
    #[getter]
    fn foreign_end(&self) -> Option<u64> {
        self.0.foreign_end()
    }
}
