//! LZ4 as Beats uses it: one block per event (version 3), or one stream of blocks per segment.
//!
//! Blocks are unpacked by the library. The stream's own framing is walked here, because a reader
//! that gives up at the first wrong byte would lose what stands before and behind it.

use std::cell::RefCell;

use lz4_flex::block;
use twox_hash::XxHash32;

use super::{find_frame, frame_end};
use crate::bytes::words;
use crate::sys::memory;

/// An event has at most this many bytes once it is unpacked.
pub const MAX_EVENT_BYTES: usize = 128 << 20;
/// A segment has at most this many bytes once it is unpacked.
pub const MAX_PLAIN_BYTES: usize = 1 << 30;
/// Bytes of no frame that a stream may unpack to before it is given up: four megabytes of a file
/// can spell a gigabyte of zeros.
const MAX_UNFRAMED_BYTES: usize = 16 << 20;

const MAGIC: u32 = 0x184D_2204;
const EMPTY: [u8; 8] = [0, 0, 0, 0, 0x05, 0x5d, 0xcc, 0x02];
/// Version 1, independent blocks, content checksum; blocks of up to 4 MiB; the check of these two.
const DESCRIPTOR: [u8; 3] = [0x64, 0x70, 0xb9];
const BLOCK_BYTES: usize = 4 << 20;
const STORED: u32 = 1 << 31;

thread_local! {
    /// Making one for every event would cost more than packing it.
    static TABLE: RefCell<block::CompressTable> = RefCell::new(block::CompressTable::small());
}

/// Packs one event. The original reader makes room for ten times the packed length only, so what
/// shrinks more goes as literals.
pub fn pack_event(plain: &[u8], out: &mut Vec<u8>) {
    let at = out.len();
    out.resize(at + block::get_maximum_output_size(plain.len()), 0);
    let room = out.get_mut(at..).unwrap_or_default();
    let len = TABLE.with_borrow_mut(|table| {
        let len = block::compress_into_with_table(plain, room, table).unwrap_or(0);
        if let block::CompressTable::Large(_) = table {
            *table = block::CompressTable::small();
        }
        len
    });
    out.truncate(at + len);
    if len == 0 || plain.len() > len.saturating_mul(10) {
        out.truncate(at);
        literals(plain, out);
    }
}

/// One LZ4 sequence that is nothing but literals.
fn literals(plain: &[u8], out: &mut Vec<u8>) {
    match u8::try_from(plain.len()).ok().filter(|len| *len < 15) {
        Some(len) => out.push(len << 4),
        None => {
            out.push(0xf0);
            let mut left = plain.len() - 15;
            while left >= 255 {
                out.push(255);
                left -= 255;
            }
            out.push(u8::try_from(left).unwrap_or(0));
        }
    }
    out.extend_from_slice(plain);
}

/// The fault of a block that is right, but for which there is no memory.
pub const NO_MEMORY: &str = "no memory is left to unpack it";

/// Unpacks one event into `out`; answers its length. The length is not stored: room is given as
/// long as it helps.
pub fn unpack_event(packed: &[u8], out: &mut Vec<u8>) -> Result<usize, String> {
    let most = packed.len().saturating_mul(255).saturating_add(64).min(MAX_EVENT_BYTES);
    let mut room = packed.len().saturating_mul(4).saturating_add(1024).max(out.len()).min(most);
    loop {
        if out.len() < room {
            if !memory::reserve(out, room - out.len()) {
                return Err(NO_MEMORY.into());
            }
            out.resize(room, 0);
        }
        match block::decompress_into(packed, out) {
            Ok(len) => return Ok(len),
            Err(block::DecompressError::OutputTooSmall { .. }) if room < most => {
                room = room.saturating_mul(4).min(most);
            }
            Err(block::DecompressError::OutputTooSmall { .. }) => {
                return Err(format!("an LZ4 block of more than {most} bytes"));
            }
            Err(error) => return Err(format!("not an LZ4 block ({error})")),
        }
    }
}

/// Damage inside a stream: byte, bytes concerned, what is there, what should be.
pub type Wrong = (usize, usize, String, String);

/// What a stream holds.
#[derive(Default)]
pub struct Unpacked {
    /// The bytes of all blocks up to the first broken one.
    pub plain: Vec<u8>,
    /// Where reading had to stop.
    pub broken: Option<Wrong>,
    /// Damage that did not stop the reading.
    pub notes: Vec<Wrong>,
    /// Where in `plain` the frames begin that the broken block still gave.
    pub saved_at: usize,
    /// What stands in the blocks behind the broken one: plain bytes of unknown position.
    pub behind: Vec<Vec<u8>>,
}

impl Unpacked {
    /// Whether nothing but memory was missing.
    pub fn is_out_of_memory(&self) -> bool {
        self.broken.as_ref().is_some_and(|(_, _, found, _)| found == NO_MEMORY)
    }
}

struct Stream<'a> {
    bytes: &'a [u8],
    at: usize,
    block_bytes: usize,
    is_linked: bool,
    has_block_check: bool,
    has_content_check: bool,
    /// Whether it is looked for where blocks begin: then only whole ones count.
    is_searching: bool,
}

/// Whether these bytes begin like a stream (or are the originals' empty one).
pub fn is_stream(bytes: &[u8]) -> bool {
    words::u32_le(bytes, 0) == Some(MAGIC) || bytes == EMPTY
}

/// Unpacks a stream; with `all` also what stands behind a broken block.
pub fn unpack_stream(bytes: &[u8], all: bool) -> Unpacked {
    let mut found = Unpacked::default();
    if bytes.is_empty() || bytes == EMPTY {
        return found;
    }
    let mut stream = match begin(bytes, &mut found) {
        Ok(stream) => stream,
        Err(wrong) => {
            found.broken = Some(wrong);
            return found;
        }
    };
    let mut framed = Framed::default();
    loop {
        let outcome = stream.next(&mut found).and_then(|goes_on| {
            framed.follow(&found.plain, stream.at)?;
            Ok(goes_on)
        });
        match outcome {
            Ok(true) => {}
            Ok(false) => break,
            Err((wrong, next)) => {
                found.broken = Some(wrong);
                if all {
                    stream.go_on(next, &mut found);
                }
                break;
            }
        }
    }
    found
}

/// How far a stream unpacks to frames.
#[derive(Default)]
struct Framed {
    /// Up to here the bytes were passed over frame by frame.
    at: usize,
    /// Where the last search for a frame behind damage ended, so that no search looks at the same
    /// bytes again.
    searched: usize,
}

impl Framed {
    /// Goes on over what one more block gave; an error once that is far more than damage explains.
    fn follow(&mut self, plain: &[u8], stream_at: usize) -> Result<(), Broken> {
        loop {
            while let Some(end) = frame_end(plain, self.at) {
                self.at = end;
            }
            let size = words::u32_le(plain, self.at).map_or(0, |size| size as usize);
            let left = plain.len() - self.at;
            let is_coming = left < 4 || (size > left && size <= MAX_EVENT_BYTES);
            if is_coming {
                return Ok(());
            }
            let from = self.at.max(self.searched);
            match find_frame(plain, from) {
                Some(next) => self.at = next,
                None => break,
            }
        }
        self.searched = plain.len().saturating_sub(4);
        let unframed = plain.len() - self.at;
        if unframed <= MAX_UNFRAMED_BYTES {
            return Ok(());
        }
        let text = format!("{unframed} unpacked bytes that are no frame");
        Err(((stream_at, 0, text, "frames".into()), stream_at))
    }
}

fn begin<'a>(bytes: &'a [u8], found: &mut Unpacked) -> Result<Stream<'a>, Wrong> {
    let cut = |found: &str| (0, bytes.len(), found.to_owned(), "an LZ4 stream".to_owned());
    let magic = words::u32_le(bytes, 0).ok_or_else(|| cut("a stream cut short"))?;
    if magic != MAGIC {
        return Err(cut(&format!("a stream that begins with {magic:08x}")));
    }
    let flags = *bytes.get(4).ok_or_else(|| cut("a stream cut short"))?;
    let has_size = flags & 8 != 0;
    let size_bytes = if has_size { 8 } else { 0 };
    let dict_bytes = if flags & 1 != 0 { 4 } else { 0 };
    let end = 6 + size_bytes + dict_bytes;
    let descriptor = bytes.get(4..end).ok_or_else(|| cut("a stream cut short"))?;
    let stored = *bytes.get(end).ok_or_else(|| cut("a stream cut short"))?;
    let [_, check, _, _] = XxHash32::oneshot(0, descriptor).to_le_bytes();
    let standard = Stream {
        bytes,
        at: 4 + DESCRIPTOR.len(),
        block_bytes: BLOCK_BYTES,
        is_linked: false,
        has_block_check: false,
        has_content_check: true,
        is_searching: false,
    };
    if check != stored || flags >> 6 != 1 {
        let text = format!("stream descriptor {}", hex(descriptor));
        found.notes.push((4, end - 3, text, hex(&DESCRIPTOR)));
        return Ok(standard); // The one that Beats always writes.
    }
    let size_code = bytes.get(5).map_or(7, |bd| bd >> 4 & 7).clamp(4, 7);
    Ok(Stream {
        at: end + 1,
        block_bytes: 1 << (8 + 2 * usize::from(size_code)),
        is_linked: flags & 0x20 == 0,
        has_block_check: flags & 0x10 != 0,
        has_content_check: flags & 4 != 0,
        ..standard
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

type Broken = (Wrong, usize);

impl Stream<'_> {
    /// Unpacks the next block. False: the stream is through. A broken block comes with the place
    /// where the next one should begin.
    fn next(&mut self, found: &mut Unpacked) -> Result<bool, Broken> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(false); // After a crash a stream simply stops.
        }
        let wrong = |len: usize, text: String, expected: &str, next: usize| {
            ((self.at, len, text, expected.to_owned()), next)
        };
        let Some(word) = words::u32_le(rest, 0) else {
            return Err(wrong(rest.len(), "a block cut short".into(), "a block", self.bytes.len()));
        };
        if word == 0 {
            self.at += 4;
            self.end(found);
            return Ok(false);
        }
        let len = (word & !STORED) as usize;
        let end = 4 + len + if self.has_block_check { 4 } else { 0 };
        found.saved_at = found.plain.len();
        let is_possible = len <= self.block_bytes + 64;
        let Some(data) = rest.get(4..4 + len).filter(|_| is_possible && end <= rest.len()) else {
            self.save(rest.get(4..).unwrap_or_default(), len, word & STORED != 0, found);
            let (text, most) =
                (format!("a block of {len} bytes"), "at most what is left, and 4 MiB");
            return Err(wrong(rest.len(), text, most, self.at + 1));
        };
        let outcome = unpack_block(data, word & STORED != 0, self, &mut found.plain);
        if let Err(text) = outcome {
            self.keep_whole(found);
            return Err(wrong(end, text, "an LZ4 block", self.at + end));
        }
        self.at += end;
        Ok(true)
    }

    /// Unpacks as much as is there of a block that should have `len` bytes.
    fn save(&self, data: &[u8], len: usize, is_stored: bool, found: &mut Unpacked) {
        if self.is_searching {
            return;
        }
        // Zeros for what is missing: they end the unpacking, or fail some frame's checksum.
        let mut padded = data.get(..self.block_bytes).unwrap_or(data).to_vec();
        padded.resize(len.clamp(padded.len(), self.block_bytes.max(padded.len())), 0);
        let _ = unpack_block(&padded, is_stored, self, &mut found.plain);
        self.keep_whole(found);
    }

    /// A broken block counts only for the frames in it that are whole, which their checksums tell.
    fn keep_whole(&self, found: &mut Unpacked) {
        if self.is_searching {
            return found.plain.truncate(found.saved_at);
        }
        let (mut at, mut end) = (0, found.saved_at);
        loop {
            if let Some(next) = frame_end(&found.plain, at) {
                at = next;
                end = end.max(next);
            } else if let Some(next) = find_frame(&found.plain, at) {
                at = next;
            } else {
                break;
            }
        }
        found.plain.truncate(end);
    }

    /// Behind the end mark: the checksum of everything.
    fn end(&mut self, found: &mut Unpacked) {
        let mut rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.iter().all(|byte| *byte == 0) && !found.plain.is_empty() {
            return; // A hole: the stream was never ended, and has no checksum.
        }
        if self.has_content_check && !rest.is_empty() {
            let stored = words::u32_le(rest, 0).unwrap_or(0);
            let computed = XxHash32::oneshot(0, &found.plain);
            if stored != computed {
                let text = format!("content checksum {stored:08x}");
                found.notes.push((self.at, rest.len().min(4), text, format!("{computed:08x}")));
            }
            rest = rest.get(4..).unwrap_or_default();
        }
        // Zeros make the file as long as its frames are: Beats take its size for theirs.
        if rest.iter().any(|byte| *byte != 0) {
            let text = format!("{} bytes behind the end mark", rest.len());
            let at = self.bytes.len() - rest.len();
            found.notes.push((at, rest.len(), text, "nothing".into()));
        }
    }

    /// Blocks behind a broken one: at `next`, or wherever bytes unpack to something.
    fn go_on(&mut self, next: usize, found: &mut Unpacked) {
        self.at = next;
        self.is_searching = true;
        // Bytes that were made to look like blocks must not make the search quadratic.
        let mut budget = self.bytes.len().saturating_mul(16).saturating_add(256 << 20);
        while self.at < self.bytes.len() {
            let Some(left) = budget.checked_sub(self.cost()) else { break };
            budget = left;
            let mut piece = Unpacked::default();
            match self.next(&mut piece) {
                Ok(true) if !piece.plain.is_empty() => found.behind.push(piece.plain),
                Ok(true) => {}
                Ok(false) if self.at + 4 >= self.bytes.len() => break,
                _ => self.at += 1,
            }
        }
    }

    /// Bytes that unpacking what stands here may touch.
    fn cost(&self) -> usize {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let len = words::u32_le(rest, 0).map_or(0, |word| (word & !STORED) as usize);
        if len > rest.len() { 4 } else { 4 + most_plain(len, self.block_bytes) }
    }
}

/// How many bytes a block of `len` bytes can unpack to.
fn most_plain(len: usize, block_bytes: usize) -> usize {
    len.saturating_mul(255).saturating_add(64).min(block_bytes)
}

/// Unpacks a block behind `plain`. One that breaks off leaves there what it gave.
fn unpack_block(
    data: &[u8],
    is_stored: bool,
    stream: &Stream<'_>,
    plain: &mut Vec<u8>,
) -> Result<(), String> {
    if plain.len().saturating_add(data.len()) > MAX_PLAIN_BYTES {
        return Err(format!("a stream of more than {MAX_PLAIN_BYTES} bytes"));
    }
    let most = if is_stored { data.len() } else { most_plain(data.len(), stream.block_bytes) };
    if !memory::reserve(plain, most) {
        return Err(NO_MEMORY.into());
    }
    if is_stored {
        plain.extend_from_slice(data);
        return Ok(());
    }
    let before = plain.len();
    let dict_at = if stream.is_linked { before.saturating_sub(64 << 10) } else { before };
    let dict = plain.get(dict_at..).unwrap_or_default().to_vec();
    plain.resize(before + most, 0);
    let room = plain.get_mut(before..).unwrap_or_default();
    let len = block::decompress_into_with_dict(data, room, &dict)
        .map_err(|error| format!("a block that does not unpack ({error})"))?;
    plain.truncate(before + len);
    Ok(())
}

/// Where the blocks of a stream that is still open end: at zeros, or with the bytes.
pub fn open_end(bytes: &[u8]) -> usize {
    let mut at = 4 + DESCRIPTOR.len();
    while let Some(word) = words::u32_le(bytes, at).filter(|word| *word != 0) {
        at += 4 + (word & !STORED) as usize;
    }
    at.min(bytes.len())
}

/// A whole stream, closed.
pub fn pack_stream(plain: &[u8]) -> Vec<u8> {
    let mut out = carry_on(plain, false);
    out.extend_from_slice(&ending(plain));
    out
}

fn pack_block(plain: &[u8], out: &mut Vec<u8>) {
    let packed = block::compress(plain);
    let (word, data) = if packed.len() < plain.len() {
        (words::small(packed.len()), packed.as_slice())
    } else {
        (words::small(plain.len()) | STORED, plain)
    };
    out.extend_from_slice(&word.to_le_bytes());
    out.extend_from_slice(data);
}

/// What carries an open stream on by `plain`: its beginning, where there is none yet, and blocks.
pub fn carry_on(plain: &[u8], is_begun: bool) -> Vec<u8> {
    let mut out = Vec::new();
    if !is_begun {
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&DESCRIPTOR);
    }
    for piece in plain.chunks(BLOCK_BYTES) {
        pack_block(piece, &mut out);
    }
    out
}

/// What ends a stream of `plain`: the end mark and the checksum of everything.
pub fn ending(plain: &[u8]) -> [u8; 8] {
    let mut out = [0; 8];
    if let Some(check) = out.last_chunk_mut::<4>() {
        *check = XxHash32::oneshot(0, plain).to_le_bytes();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies() -> [Vec<u8>; 4] {
        let mixed = (0..300_000u32).flat_map(|n| (n.wrapping_mul(n) >> 7).to_le_bytes());
        [vec![], b"a".to_vec(), vec![7; 100_000], mixed.collect()]
    }

    #[test]
    fn an_event_that_was_packed_is_unpacked() {
        for plain in bodies() {
            let (mut packed, mut out) = (Vec::new(), Vec::new());
            pack_event(&plain, &mut packed);
            let len = unpack_event(&packed, &mut out).expect("a block");
            assert_eq!(out.get(..len), Some(plain.as_slice()));
        }
    }

    #[test]
    fn a_stream_that_was_packed_is_unpacked() {
        for plain in bodies() {
            let packed = pack_stream(&plain);
            let found = unpack_stream(&packed, true);
            assert!(found.broken.is_none() && found.plain == plain);
        }
    }

    #[test]
    fn a_stream_cut_anywhere_gives_a_beginning_of_what_it_held() {
        let plain: Vec<u8> = (0..5000u32).flat_map(u32::to_le_bytes).collect();
        let packed = pack_stream(&plain);
        for end in (0..packed.len()).step_by(61) {
            let found = unpack_stream(packed.get(..end).expect("inside"), false);
            assert!(plain.starts_with(found.plain.get(..found.saved_at).expect("inside")));
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut state = 1u64;
        for _ in 0..60 {
            let bytes: Vec<u8> = (0..64)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    state.to_le_bytes()[7]
                })
                .collect();
            let _ = unpack_event(&bytes, &mut Vec::new());
            let stream = [&MAGIC.to_le_bytes()[..], &bytes].concat();
            let _ = unpack_stream(&stream, true);
        }
    }
}
