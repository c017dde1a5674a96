//! One decoder, by the name in `PENSTOCK_FUZZ_TARGET`.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<String> = LazyLock::new(|| {
    let given = std::env::var("PENSTOCK_FUZZ_TARGET").unwrap_or_default();
    assert!(_core::fuzzing::TARGETS.contains(&given.as_str()), "no target {given:?}");
    given
});

fuzz_target!(|data: &[u8]| _core::fuzzing::run(&TARGET, data));
