//! The note of a batch that is written before anyone can see the batch.

use std::io;
use std::path::PathBuf;

use crate::bytes::words;
use crate::files::region;
use crate::segment::Segment;
use crate::segment::publish::Batch;
use crate::shared::control::Control;

/// Where the note goes, and what else stands in it.
pub struct Note {
    /// The file.
    pub path: PathBuf,
    /// Its first line.
    pub text: String,
}

/// The bytes behind the first frame's held word, which alone differs before and after.
pub fn check(segment: &Segment, first: u64, end: u64) -> u32 {
    let bytes = segment.frame_bytes(first, words::size(end.saturating_sub(first)));
    crate::bytes::checksum::crc32c(bytes.get(4..).unwrap_or_default())
}

impl Note {
    /// Syncs the frames, then writes the note.
    pub fn write(&self, control: &Control, segment: &Segment, batch: &Batch) -> io::Result<()> {
        control.sync(|| segment.map().map_or(Ok(()), |map| region::sync(map.file()?)))?;
        let (first, end) = (batch.first, batch.end);
        let check = check(segment, first, end);
        let text =
            format!("{}\n{{\"first\": {first}, \"end\": {end}, \"check\": {check}}}\n", self.text);
        region::replace(&self.path, text.as_bytes(), true)
    }
}
