//! How much fits into a queue, and into one append.

use std::borrow::Borrow;

use crate::append::write::{Obstacle, Outcome};
use crate::segment::Segment;
use crate::segment::frame::{Draft, Drafts};

/// How many bytes of a list become visible together, at most.
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

/// How many bytes the drafts' frames take, each one's in `sizes`; or why the format can't hold one.
#[inline(always)]
pub(crate) fn measure<D: Drafts + ?Sized>(
    segment: &Segment,
    drafts: &D,
    sizes: &mut Vec<usize>,
    most: usize,
) -> Outcome<usize> {
    sizes.clear();
    segment.frames().begin();
    let mut total = 0usize;
    for draft in drafts.each() {
        let draft = draft.borrow();
        refuse_large(draft, most).map_err(Obstacle::Refused)?;
        let size = segment.frames().measure(draft).map_err(Obstacle::Unfit)?;
        sizes.push(size);
        total = total.saturating_add(size);
    }
    Ok(total)
}

/// Refuses a body above the limit.
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

/// The tail at which the next segment should be prepared: an eighth into `segment`, since at full
/// speed the rest of it takes as long to fill as its successor takes to zero. Where the writer was
/// quick, at once.
pub fn mark_of(segment: &Segment, is_quick: bool) -> u64 {
    let ahead = segment.map().map_or(u64::MAX / 2, |map| map.len() as u64 / 8);
    segment.base() + if is_quick { 0 } else { ahead }
}
