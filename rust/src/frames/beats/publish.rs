//! How appended frames become part of a Beats queue: they are whole when they are written, so
//! there is nothing more to publish, except in segments that are one compressed stream.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Mutex;

use super::lz4;
use crate::frame::{Batch, Publish};
use crate::region;
use crate::segment::Segment;

/// Bits of an offset that are the position inside its segment.
pub const POSITION_BITS: u32 = 40;

/// The file's length is the end.
pub struct FileEnd;

fn cut(segment: &Segment, end: u64) -> std::io::Result<()> {
    let Some(map) = segment.map() else { return Ok(()) };
    let position = segment.position(end) as u64;
    match map.file().metadata()?.len() > position {
        true => region::set_len(map.file(), position),
        false => Ok(()),
    }
}

impl Publish for FileEnd {
    fn publish(&self, _segment: &Segment, _batch: &Batch) -> std::io::Result<()> {
        Ok(())
    }

    fn settle(&self, segment: &Segment, batch: &Batch, _reserved: u64) -> std::io::Result<()> {
        cut(segment, batch.end)
    }
}

struct Open {
    base: u64,
    file: File,
    end: u64,
    is_begun: bool,
}

/// Frames are appended to a plain copy beside the queue, which all processes map; every batch is
/// also added as a block to the segment's own file.
pub struct StreamEnd {
    folder: PathBuf,
    open: Mutex<Option<Open>>,
}

impl StreamEnd {
    /// For the queue in `folder`.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, open: Mutex::new(None) }
    }

    fn begin(&self, base: u64) -> std::io::Result<Open> {
        let name = format!("{}.seg", base >> POSITION_BITS);
        let file = region::open(&self.folder.join(name), true)?;
        let end = file.metadata()?.len();
        Ok(Open { base, file, end, is_begun: false })
    }
}

impl Publish for StreamEnd {
    fn publish(&self, segment: &Segment, batch: &Batch) -> std::io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(|e| e.into_inner());
        if open.as_ref().is_none_or(|open| open.base != segment.base()) {
            *open = Some(self.begin(segment.base())?);
        }
        let Some(open) = open.as_mut() else { return Ok(()) };
        let len = crate::words::size(batch.end.saturating_sub(batch.first));
        let block = lz4::carry_on(segment.frame_bytes(batch.first, len), open.is_begun);
        region::write_at(&open.file, open.end, &block)?;
        open.end += block.len() as u64;
        open.is_begun = true;
        Ok(())
    }

    fn settle(&self, segment: &Segment, batch: &Batch, _reserved: u64) -> std::io::Result<()> {
        cut(segment, batch.end)
    }
}
