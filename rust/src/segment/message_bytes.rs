//! Where a message's bytes are: in a mapped frame, or in bytes of its own.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use crate::bytes::words::{self, align8};
use crate::segment::Segment;
use crate::segment::frame::{FrameView, Span};
use crate::segment::penstock_frame::PenstockFrames;

/// A message that was found. Of a plain frame only the body's place is kept, since most
/// users ask for nothing else: the rest is read from the frame again when it is asked for.
#[derive(Default)]
pub struct MessageBytes {
    segment: Option<Arc<Segment>>,
    pub frame: u64,
    size: u32,
    body: Span,
    full: Option<Box<FrameView>>,
}

impl MessageBytes {
    /// What was found in `frame` of `segment`. Takes from `view` what can't be found again.
    #[inline(always)]
    pub fn found(segment: Arc<Segment>, frame: u64, view: &mut FrameView) -> Self {
        let (size, body) = (words::small(view.size), view.body);
        let is_plain = segment.has_plain() && view.owned.is_none() && view.due_ns == 0;
        let full = if is_plain { None } else { Some(kept(view)) };
        Self { segment: Some(segment), frame, size, body, full }
    }

    /// What was found in a frame of `len` bytes that has nothing but a body.
    #[inline(always)]
    pub fn bare(segment: Arc<Segment>, frame: u64, len: usize) -> Self {
        let (size, body) = (words::small(align8(len)), PenstockFrames::bare_body(len));
        Self { segment: Some(segment), frame, size, body, full: None }
    }

    /// Takes the segment away from a message that nobody has any more.
    #[inline(always)]
    pub fn take_segment(&mut self) -> Option<Arc<Segment>> {
        self.segment.take()
    }

    /// A message that is in no queue yet: its spans are into the view's own bytes.
    pub fn new(view: FrameView) -> Self {
        let (body, full) = (view.body, Some(Box::new(view)));
        Self { segment: None, frame: 0, size: 0, body, full }
    }

    /// Everything that is known about it.
    pub fn view(&self) -> Cow<'_, FrameView> {
        match (&self.full, &self.segment) {
            (Some(view), _) => Cow::Borrowed(view),
            (None, Some(segment)) => Cow::Owned(segment.plain_again(self.frame, self.size)),
            (None, None) => Cow::Owned(FrameView::default()),
        }
    }

    /// The bytes of a span of its view.
    #[inline]
    pub fn bytes(&self, span: Span) -> &[u8] {
        let owned = self.full.as_deref().and_then(|view| view.owned.as_deref());
        match (owned, &self.segment) {
            (Some(owned), _) => span.of(owned),
            (None, Some(segment)) => segment.part(self.frame, span),
            (None, None) => &[],
        }
    }

    /// Its file, if that was cut short since: then `bytes`, which were read from it, may be zeros.
    #[inline]
    pub fn cut(&self, bytes: &[u8]) -> Option<&Path> {
        let segment = self.segment.as_ref()?;
        let is_owned = self.full.as_deref().is_some_and(|view| view.owned.is_some());
        // What lies behind the end of a file in its last page is zeros, up to the body's end. The
        // look for them comes first: it may meet the cut itself.
        let end = self.frame.saturating_add(u64::from(self.size));
        let may_be_cut = bytes.last() == Some(&0) && !is_owned;
        let lacks = may_be_cut && !segment.is_whole_up_to(self.frame, end);
        (!is_owned && (lacks || segment.is_cut())).then(|| segment.path())
    }

    /// Bytes of the body.
    #[inline]
    pub fn len(&self) -> usize {
        self.body.len as usize
    }

    /// Where the body is.
    #[inline]
    pub fn body(&self) -> Span {
        self.body
    }

    /// The bytes inside the frame, still encoded, compressed or encrypted.
    pub fn payload(&self) -> Cow<'_, [u8]> {
        match &self.segment {
            Some(segment) => Cow::Owned(segment.payload(self.frame, &self.view()).into_owned()),
            None => Cow::Borrowed(self.bytes(self.body)),
        }
    }
}

#[cold]
fn kept(view: &mut FrameView) -> Box<FrameView> {
    Box::new(std::mem::take(view))
}
