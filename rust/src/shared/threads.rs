//! The protocol by real threads on a real mapping: what one writes another reads only behind a word
//! that orders the two. ThreadSanitizer, under which the ladder runs this, reports what nothing
//! orders, however rarely it goes wrong.

use std::fs::OpenOptions;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::protocol::{self, Heard, TailWord, TailWords, Word, World};
use crate::sys::futex::{self, Woken};
use crate::sys::mapping::Mapping;

const PUTS: u64 = 2_000;
const PUTTERS: u32 = 3;
const FRAME_BYTES: usize = 24;
const FRAMES_AT: usize = 4096;

/// Where the words are.
mod at {
    pub const LOCK: usize = 0;
    pub const WAITERS: usize = 4;
    pub const EVENT: usize = 8;
    pub const DIRTY: usize = 12;
    pub const ASKED: usize = 16;
    pub const IS_OVER: usize = 20;
    pub const TAIL: usize = 64;
    pub const SYNCED: usize = 128;
}

struct Threads;

impl World<AtomicU32> for Threads {
    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Woken {
        futex::wait(word, expected, timeout)
    }

    fn wake(&self, word: &AtomicU32, count: i32) {
        futex::wake(word, count);
    }

    fn wake_idle(&self, word: &AtomicU32) {
        futex::wake_idle(word);
    }

    fn is_alive(&self, _: u32) -> bool {
        true
    }
}

struct Mapped(Mapping);

impl TailWords for Mapped {
    fn load(&self, word: TailWord) -> u64 {
        self.0.word64(at::TAIL + word as usize * 8).load(Ordering::Acquire)
    }

    fn store(&self, word: TailWord, value: u64) {
        self.0.publish64(at::TAIL + word as usize * 8, value);
    }
}

impl Mapped {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("penstock-threads-{}", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.expect("a file");
        let frames = usize::try_from(PUTS).expect("small") * PUTTERS as usize * FRAME_BYTES;
        let len = (FRAMES_AT + frames).next_multiple_of(4096);
        file.set_len(len as u64).expect("room");
        std::fs::remove_file(&path).expect("there");
        Self(Mapping::new(file, len, true).expect("a mapping"))
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        self.0.word32(at)
    }

    fn locked<T>(&self, name: u32, work: impl FnOnce() -> T) -> T {
        let word = self.word(at::LOCK);
        while protocol::try_take(word, name).is_none() {
            let seen = protocol::wait_for(&Threads, word, Duration::from_secs(60));
            if protocol::take_seen(word, name, &seen).is_some() {
                break;
            }
        }
        let answer = work();
        protocol::give(&Threads, word, name);
        answer
    }

    fn frame(&self, number: u64) -> &[u8] {
        let at = FRAMES_AT + usize::try_from(number).expect("small") * FRAME_BYTES;
        self.0.get(at, FRAME_BYTES).expect("room")
    }

    fn put(&self, name: u32) {
        self.locked(name, || {
            let (tail, number) = self.end_and_number();
            self.reserve(tail + FRAME_BYTES as u64, number + 1);
            let at = FRAMES_AT + usize::try_from(tail).expect("small");
            let byte = number.to_le_bytes()[0] | 1;
            self.0.write_with(at, FRAME_BYTES, |out| out.fill(byte)).expect("room");
            self.advance(tail + FRAME_BYTES as u64, number + 1);
            let announce = || protocol::announce(&Threads, self.word(at::DIRTY));
            protocol::ask(self.word(at::ASKED), announce);
        });
        let signal = || protocol::raise(&Threads, self.word(at::EVENT));
        protocol::wake_waiters(self.word(at::WAITERS), signal);
    }

    fn tail(&self) -> u64 {
        TailWords::load(self, TailWord::Tail)
    }

    /// Reads everything as it comes.
    fn follow(&self, all: u64) {
        let mut number = 0;
        while number < all {
            let end = self.tail() / FRAME_BYTES as u64;
            if end == number {
                let seen = self.word(at::EVENT).load(Ordering::SeqCst);
                protocol::join(self.word(at::WAITERS));
                let ready = || self.tail() / FRAME_BYTES as u64 != number;
                protocol::wait_event(&Threads, self.word(at::EVENT), seen, None, ready);
                self.word(at::WAITERS).fetch_sub(1, Ordering::SeqCst);
            }
            for one in number..end {
                let byte = one.to_le_bytes()[0] | 1;
                assert!(self.frame(one).iter().all(|found| *found == byte), "frame {one}");
            }
            number = end;
        }
    }

    /// Until there is nothing more to come, what was asked for is synced.
    fn maintain(&self, name: u32) {
        let mut heard = Heard { seen: u32::MAX, target: 0 };
        loop {
            let is_over = self.word(at::IS_OVER).load(Ordering::SeqCst) != 0;
            let synced = self.0.word64(at::SYNCED);
            let words = (self.word(at::DIRTY), self.word(at::ASKED));
            if heard.listen(words, || self.tail(), synced.load(Ordering::Acquire)) {
                let tail = self.locked(name, || {
                    protocol::begin_sync(self.word(at::ASKED));
                    self.tail()
                });
                synced.store(tail, Ordering::Release);
            } else if is_over {
                return;
            } else {
                Threads.wait(self.word(at::DIRTY), heard.seen, None);
            }
        }
    }
}

#[test]
fn threads_read_what_others_put_and_sync_it() {
    let (queue, all) = (Mapped::new(), PUTS * u64::from(PUTTERS));
    thread::scope(|scope| {
        scope.spawn(|| queue.maintain(100));
        let readers = [scope.spawn(|| queue.follow(all)), scope.spawn(|| queue.follow(all))];
        let putters = [1, 2, 3].map(|name| {
            let queue = &queue;
            scope.spawn(move || (0..PUTS).for_each(|_| queue.put(name)))
        });
        putters.into_iter().chain(readers).for_each(|one| one.join().expect("its own"));
        queue.word(at::IS_OVER).store(1, Ordering::SeqCst);
        protocol::raise(&Threads, queue.word(at::DIRTY));
    });
    assert_eq!(queue.tail(), all * FRAME_BYTES as u64);
    assert_eq!(queue.0.word64(at::SYNCED).load(Ordering::Acquire), queue.tail());
    assert!(!protocol::is_asked(Word::load(queue.word(at::ASKED), Ordering::SeqCst)));
}
