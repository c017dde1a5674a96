//! How much of the processor a thread of ours asks for.

/// Asks for less than others have, for the thread that calls it alone.
pub fn lower() {
    const NICE: libc::c_int = 10;
    // SAFETY: plain values; 0 is the calling thread, as Linux has it. A thread may always ask for
    // less.
    unsafe { libc::setpriority(libc::PRIO_PROCESS as _, 0, NICE) };
}
