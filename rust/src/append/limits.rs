//! How much and how long: what fits into a queue, sizes of batches, seconds as nanoseconds.

use pyo3::prelude::*;

use crate::append::Writer;
use crate::errors;
use crate::formats::frame::Draft;
use crate::message::Message;
use crate::segment::Segment;

/// `seconds` as nanoseconds.
pub fn seconds_to_ns(seconds: f64) -> PyResult<i64> {
    if !seconds.is_finite() || !(0.0..=4e9).contains(&seconds) {
        let wrong = ("seconds", seconds, "a number of seconds from 0 to 4e9");
        return Err(Python::attach(|py| errors::error(py, "OptionError", wrong)));
    }
    #[allow(clippy::cast_possible_truncation, reason = "in range: checked above")]
    Ok((seconds * 1e9) as i64)
}

/// Bytes of a list that go in one piece.
pub fn batch_limit(segment: &Segment) -> usize {
    let limit = segment.frames().most_at_once(segment.map().map_or(0, |map| map.len()));
    segment.ring().map_or(limit, |ring| limit.min(crate::bytes::words::size(ring.len() / 2)))
}

/// About how many bytes a draft takes.
pub fn rough_size(draft: &Draft<'_>) -> usize {
    256 + draft.body.len()
        + draft.tag.len()
        + draft.id.len()
        + draft.key.len()
        + draft.headers.len()
}

/// Bytes of the drafts' frames, each one's in `sizes`; or why one can't be held.
pub fn measure(
    segment: &Segment,
    drafts: &[Draft<'_>],
    sizes: &mut Vec<usize>,
    most: usize,
) -> Result<usize, String> {
    sizes.clear();
    segment.frames().begin();
    let mut total = 0usize;
    for draft in drafts {
        refuse_large(draft, most)?;
        let size = segment.frames().measure(draft)?;
        sizes.push(size);
        total = total.saturating_add(size);
    }
    Ok(total)
}

/// A body above the limit is refused.
pub fn refuse_large(draft: &Draft<'_>, most: usize) -> Result<(), String> {
    let len = draft.body.len();
    if len <= most {
        return Ok(());
    }
    Err(format!(
        "the body has {len} bytes, max_message_bytes is {most}: \
         open the queue with more, or put a reference to what is large"
    ))
}

/// Where the next segment should be prepared, an eighth into `segment`: at full speed the rest of
/// it takes about as long to fill as its successor takes to zero.
pub fn mark_of(segment: &Segment) -> u64 {
    segment.base() + segment.map().map_or(u64::MAX / 2, |map| map.len() as u64 / 8)
}

#[pymethods]
impl Writer {
    /// Why the queue can't hold `message`; none when it can.
    fn refusal(&self, py: Python<'_>, message: &Message) -> PyResult<Option<String>> {
        let draft = message.draft();
        let most = self.max_message_bytes.load(std::sync::atomic::Ordering::Relaxed);
        let segment = self.current(py)?;
        Ok(refuse_large(&draft, most)
            .and_then(|()| segment.frames().measure(&draft).map(drop))
            .err())
    }
}
