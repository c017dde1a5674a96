//! The table against a list: random things happen to both, and both say the same.

use std::collections::BTreeMap;

use super::{Entry, EntryState, NEVER, NONE, Table, at};

struct Random(u64);

impl Random {
    /// A number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

struct Model {
    table: Table,
    /// By offset: the entry's place, its state, its deadline, its key.
    known: BTreeMap<u64, (u32, EntryState, i64, u64)>,
    next: u64,
}

impl Model {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("penstock-{name}-{}", std::process::id()));
        let table = Table::open(&path).expect("a file");
        std::fs::remove_file(&path).expect("ours");
        table.forget();
        table.clear();
        Self { table, known: BTreeMap::new(), next: 0 }
    }

    fn is_first_of_key(&self, offset: u64, key: u64) -> bool {
        key == 0 || !self.known.range(..offset).any(|(_, known)| known.3 == key)
    }

    fn enter(&mut self, random: &mut Random) {
        let key = if random.below(3) == 0 { 1 + random.below(5) } else { 0 };
        let deadline = i64::try_from(random.below(1000)).expect("small");
        let state = match random.below(3) {
            _ if !self.is_first_of_key(u64::MAX, key) => EntryState::Blocked,
            0 => EntryState::Delayed,
            1 => EntryState::Ready,
            _ => EntryState::Leased,
        };
        let offset = self.next;
        let entry = Entry { state, deadline, key, timeout: 1, ..Entry::read(offset, offset, NONE) };
        self.next += 1 + random.below(100);
        self.table.set_wide(at::NEXT, self.next);
        let place = self.table.enter(&entry).expect("room");
        self.table.move_cursor();
        self.known.insert(offset, (place, state, deadline, key));
    }

    /// Some message in this state.
    fn pick(&self, random: &mut Random, state: EntryState) -> Option<u64> {
        let all: Vec<u64> =
            self.known.iter().filter(|(_, known)| known.1 == state).map(|(at, _)| *at).collect();
        let index = random.below(all.len().max(1) as u64);
        all.get(usize::try_from(index).expect("small")).copied()
    }

    fn finish(&mut self, random: &mut Random, state: EntryState, now: i64) {
        let Some(offset) = self.pick(random, state) else { return };
        let (place, _, _, key) = self.known.remove(&offset).expect("known");
        self.table.withdraw(place);
        self.table.finish(place, now);
        let heir = self.known.values_mut().find(|known| key != 0 && known.3 == key);
        if let Some(heir) = heir.filter(|heir| heir.1 == EntryState::Blocked) {
            heir.1 = if heir.2 > now { EntryState::Delayed } else { EntryState::Ready };
        }
    }

    /// Hands out the one behind a message that is out, if it waits for that one alone.
    fn lease_behind(&mut self, random: &mut Random, now: i64) {
        let Some(offset) = self.pick(random, EntryState::Leased) else { return };
        let (place, _, _, key) = self.known[&offset];
        let next = self.table.next_of_key(place);
        let behind = self.known.range_mut(offset + 1..).map(|(_, known)| known);
        let behind = behind.into_iter().find(|known| key != 0 && known.3 == key);
        assert_eq!(behind.as_ref().map_or(NONE, |known| known.0), next);
        if let Some(known) = behind.filter(|known| known.1 == EntryState::Blocked) {
            (known.1, known.2) = (EntryState::Leased, now + 40);
            self.table.lease_ready(known.0, 1, NONE, now + 40, 40);
        }
    }

    fn give_back(&mut self, random: &mut Random) {
        let Some(offset) = self.pick(random, EntryState::Leased) else { return };
        let is_first = self.is_first_of_key(offset, self.known[&offset].3);
        let known = self.known.get_mut(&offset).expect("known");
        self.table.make_ready(known.0);
        known.1 = if is_first { EntryState::Ready } else { EntryState::Blocked };
        known.2 = if is_first { known.2 } else { 0 };
    }

    fn step(&mut self, random: &mut Random, now: i64) {
        match random.below(9) {
            0..=2 => self.enter(random),
            3 => self.finish(random, EntryState::Leased, now),
            4 => self.give_back(random),
            5 => self.lease_behind(random, now),
            6 => {
                let states = [EntryState::Ready, EntryState::Blocked, EntryState::Delayed];
                let state = states[usize::try_from(random.below(3)).expect("small")];
                self.finish(random, state, now);
            }
            7 => {
                let lowest = self.known.iter().find(|(_, known)| known.1 == EntryState::Ready);
                let lowest = lowest.map(|(offset, _)| *offset);
                let first = self.table.first_ready();
                assert_eq!(first, lowest.and_then(|at| self.known.get(&at)).map(|known| known.0));
                let Some(known) = lowest.and_then(|at| self.known.get_mut(&at)) else { return };
                (known.1, known.2) = (EntryState::Leased, now + 40);
                self.table.lease_ready(known.0, 1, NONE, now + 40, 40);
            }
            _ => {
                let Some(offset) = self.pick(random, EntryState::Leased) else { return };
                let known = self.known.get_mut(&offset).expect("known");
                known.2 = now + i64::try_from(random.below(500)).expect("small");
                self.table.extend(known.0, known.2, 1);
            }
        }
    }

    fn check(&self, now: i64) {
        let table = &self.table;
        assert!(table.is_sound());
        assert_eq!(table.wide(at::CURSOR), *self.known.keys().next().unwrap_or(&self.next));
        let outstanding: Vec<u64> =
            table.outstanding().filter_map(|place| table.entry(place)).map(|e| e.offset).collect();
        assert_eq!(outstanding, self.known.keys().copied().collect::<Vec<_>>());
        for (offset, (place, state, _, key)) in &self.known {
            assert_eq!((table.find(*offset), table.state(*place)), (Some(*place), *state));
            assert!(*key == 0 || table.is_key_busy(*key));
        }
        let watched = |known: &&(u32, EntryState, i64, u64)| {
            matches!(known.1, EntryState::Leased | EntryState::Delayed)
        };
        let earliest = self.known.values().filter(watched).map(|known| known.2).min();
        let due = table.due(now).and_then(|place| table.entry(place)).map(|entry| entry.deadline);
        assert_eq!(due, earliest.filter(|deadline| *deadline <= now));
        assert_eq!(table.attention(), earliest.unwrap_or(NEVER));
    }
}

#[test]
fn whatever_happens_the_table_says_what_a_list_would() {
    for seed in 1..=8 {
        let (mut model, mut random) = (Model::new("model"), Random(seed * 0x9E37_79B9));
        for step in 0..1500 {
            let now = step / 2;
            model.step(&mut random, now);
            model.check(now);
        }
    }
}

#[test]
fn a_table_with_a_wrong_word_is_not_sound() {
    let words = [at::CAPACITY, at::USED, at::HEAP_LEN, at::READY_LEN, at::GAPS, at::FREE];
    let mut model = Model::new("wrong");
    let mut random = Random(77);
    for _ in 0..600 {
        model.step(&mut random, 0);
    }
    for word in words {
        let before = model.table.small(word);
        for bit in 0..32 {
            model.table.set_small(word, before ^ 1 << bit);
            let is_sound = model.table.is_sound(); // It ends, whatever it says.
            assert!(!is_sound || word != at::CAPACITY, "bit {bit} of the capacity");
            model.table.set_small(word, before);
        }
        assert!(model.table.is_sound());
    }
    for word in [at::ORDER_FIRST, at::ORDER_LEN] {
        let before = model.table.wide(word);
        for bit in 0..64 {
            model.table.set_wide(word, before ^ 1 << bit);
            assert!(!model.table.is_sound(), "bit {bit} of word {word}");
            model.table.set_wide(word, before);
        }
    }
}
