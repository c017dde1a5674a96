//! `state.dat`: the position of the first event that was not acked.
//!
//! One write of 20 or 28 bytes inside one sector, and only when it says something new: it is
//! never seen half done, and costs little enough to follow every ack.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

use super::POSITION_BITS;
use crate::files::region;
use crate::formats::mirror::Mirror;
use crate::segment::walk::{Care, Walk};
use crate::segment::{PySegment, Segment};
use crate::sys::mapping::Mapping;

const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;
/// Version 0 counts from the end of its segments' headers.
const OLD_HEADER_BYTES: u64 = 4;

/// An offset whose frame index is known.
struct Known {
    segment: Arc<Segment>,
    offset: u64,
    index: u64,
}

/// The file, for the one group that it is for.
pub struct StateFile {
    map: Mapping,
    version: u32,
    host: Py<PyAny>,
    known: Mutex<Option<Known>>,
}

/// The bytes of `state.dat`.
pub fn pack(version: u32, offset: u64, index: u64) -> Vec<u8> {
    let (segment, position) = (offset >> POSITION_BITS, offset & POSITION_MASK);
    let mut out = version.to_le_bytes().to_vec();
    out.extend_from_slice(&segment.to_le_bytes());
    if version == 0 {
        out.extend_from_slice(&position.saturating_sub(OLD_HEADER_BYTES).to_le_bytes());
    } else {
        out.extend_from_slice(&position.to_le_bytes());
        out.extend_from_slice(&index.to_le_bytes());
    }
    out
}

impl StateFile {
    /// Opens the file, which has the length of `version`. `host` has `segment_of(offset)`.
    pub fn open(path: &Path, version: u32, host: Py<PyAny>) -> std::io::Result<Self> {
        let file: File = region::open(path, true)?;
        let map = Mapping::new(file, pack(version, 0, 0).len(), false)?;
        Ok(Self { map, version, host, known: Mutex::new(None) })
    }

    /// How many frames of its segment stand before `cursor`.
    pub fn index(&self, cursor: u64) -> std::io::Result<u64> {
        let mut known = self.known.lock().unwrap_or_else(|e| e.into_inner());
        let is_near = known.as_ref().is_some_and(|known| {
            known.offset <= cursor && known.offset >> POSITION_BITS == cursor >> POSITION_BITS
        });
        if !is_near {
            *known = self.first_of(cursor)?;
        }
        let Some(known) = known.as_mut() else { return Ok(0) };
        if known.offset < cursor {
            let mut walk = Walk::new(&known.segment, known.offset, cursor, Care::Sizes);
            known.index += walk.count_past_damage();
            known.offset = cursor;
        }
        Ok(known.index)
    }

    fn first_of(&self, cursor: u64) -> std::io::Result<Option<Known>> {
        Python::attach(|py| {
            let found = self.host.call_method1(py, "segment_of", (cursor,))?;
            if found.is_none(py) {
                return Ok(None);
            }
            let segment = Arc::clone(&found.bind(py).cast::<PySegment>()?.get().0);
            let offset = segment.first();
            Ok(Some(Known { segment, offset, index: 0 }))
        })
        .map_err(|error: PyErr| std::io::Error::other(error))
    }
}

impl Mirror for StateFile {
    fn store(&self, cursor: u64, _next: u64) -> std::io::Result<()> {
        let bookmark = pack(self.version, cursor, 0);
        // The frame index follows from the offset: without a new one there is nothing to say.
        if self.map.get(0, 20) == bookmark.get(..20) {
            return Ok(());
        }
        let index = if self.version == 0 { 0 } else { self.index(cursor)? };
        region::write_at(self.map.file()?, 0, &pack(self.version, cursor, index))
    }
}
