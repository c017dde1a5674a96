//! One file beside a segment: found or made, and mapped.

use std::io;
use std::path::Path;

use crate::bytes::words;
use crate::files::region;
use crate::sys::mapping::Growing;

const VERSION: u32 = 1;
const HEADER_BYTES: u64 = 64;

/// A file beside a segment, mapped.
pub struct Opened {
    /// Its bytes.
    pub map: Growing,
    /// Bytes the file has.
    pub allocated: u64,
    /// Whether its version and its magic, or its base, are those that were asked for: one that
    /// rotted in its magic alone is still ours.
    pub is_ours: bool,
}

/// Opens the file at `path`; a missing one is made when `make` says so, else there is none. Its
/// header begins with the magic and has the base behind it.
pub fn open_side(
    path: &Path,
    (magic, base): (&[u8; 8], u64),
    writable: bool,
    make: bool,
) -> io::Result<Option<Opened>> {
    let file = match region::open(path, writable) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && make => {
            let file = region::open_or_create(path)?;
            // A power cut that loses the name would lose all notes in the file.
            if let Err(error) = path.parent().map_or(Ok(()), region::sync_folder) {
                let _ = region::unlink(path); // The next opener makes it, and syncs, anew.
                return Err(error);
            }
            file
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    if region::len(&file)? < HEADER_BYTES {
        if !make {
            return Ok(None);
        }
        region::allocate(&file, 4096)?;
    }
    let allocated = region::len(&file)?;
    let map = Growing::new(file, writable)?;
    let head = map.get(0, 12).unwrap_or_default();
    let is_blank = head.iter().all(|byte| *byte == 0);
    if is_blank && !writable {
        return Ok(None); // The file was made, and nothing of it reached the disk.
    }
    let has_base = map.get(16, 8).and_then(|raw| words::u64_le(raw, 0)) == Some(base);
    let is_named = head.get(..8) == Some(magic);
    let is_ours = (is_named || has_base) && words::u32_le(head, 8) == Some(VERSION);
    if is_blank || (is_ours && !is_named && writable) {
        // Another process may do the same: it writes the same bytes, and nothing is noted yet.
        map.first().store(16, &base.to_le_bytes());
        // With one store, so that the header is never there in part.
        let mut head = [0u8; 12];
        words::put(&mut head, 0, magic);
        words::put_u32_le(&mut head, 8, VERSION);
        map.first().store(0, &head);
    }
    Ok(Some(Opened { map, allocated, is_ours: is_ours || is_blank }))
}
