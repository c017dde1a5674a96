//! `penstock._core`: finds and moves bytes and keeps shared state; holds no policy.

mod ahead;
mod aio;
mod append;
mod arrow_in;
mod arrow_out;
mod atomic;
mod check;
mod checksum;
mod cipher;
mod clock;
mod codecs;
mod control;
mod effects;
mod errors;
mod extras;
mod frame;
mod frames;
mod gate;

mod group;
mod headers;
mod integrity;
mod limits;
mod lock;
mod message;
mod pack;
mod place;
mod region;
mod ring;
mod roll;
mod scan;
mod segment;
mod sides;
mod spot;
mod sync;
mod sys;
mod tags;
mod waiters;
mod walk;
mod words;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    #[pymodule_export]
    use super::aio::Watch;
    #[pymodule_export]
    use super::append::Writer;
    #[pymodule_export]
    use super::arrow_out::arrow_stream;
    #[pymodule_export]
    use super::atomic::check_range;
    #[pymodule_export]
    use super::cipher::{seal_bytes, unseal_bytes};
    #[pymodule_export]
    use super::clock::Clock;
    #[pymodule_export]
    use super::codecs::{
        consumer_offset, crc32, crc32c, mfq_frames, penstock_frames, producer_offset,
        publish_size_word, tag_matches, vqs_frames, zbus_frames,
    };
    #[pymodule_export]
    use super::control::Shared;
    #[pymodule_export]
    use super::effects::{
        bus_errors, create_file, fail_syncs, file_system, mark_effect, record_effects, rename_file,
        replace_file, resize_file, sync_file, sync_folder, take_effects, unlink_file, write_file,
    };
    #[pymodule_export]
    use super::frames::beats::face::{
        beats_check_seal, beats_close_seal, beats_crypt, beats_frames, beats_is_stream,
        beats_pack_stream, beats_plain_frame, beats_publish, beats_state, beats_stream,
        beats_stream_end, beats_stream_rest, beats_whole_frames,
    };
    #[pymodule_export]
    use super::frames::mfq_consumer::MfqConsumer;
    #[pymodule_export]
    use super::frames::mfq_producer::MfqProducer;
    #[pymodule_export]
    use super::frames::vqs_header::PyRingHeader;
    #[pymodule_export]
    use super::frames::zbus_files::ZbusIndex;
    #[pymodule_export]
    use super::group::journal::replay_journal;
    #[pymodule_export]
    use super::group::{PyGroup, PyMirror};
    #[pymodule_export]
    use super::message::Message;
    #[pymodule_export]
    use super::scan::Scan;
    #[pymodule_export]
    use super::segment::{PyFrames, PyPublish, PySegment};
    #[pymodule_export]
    use super::sys::view::View;
    #[pymodule_export]
    use super::walk::{
        Walked, find_frame, frame_cuts, frame_start, is_boundary, skip_frames, walk,
    };
}
