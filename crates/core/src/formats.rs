//! The formats that a program may write to a store. Layers and stores ask before they write; reading needs no such question.
//!
//! Programs of two versions work on one store during a rolling upgrade. Invariant: nothing is written that a program which may
//! still open the store cannot read.

/// Formats that may be written to a store: those that programs of this schema version read, and all later ones.
///
/// A store keeps that version (`readable_from`), and `semel migrate --finish` raises it. A value that lags behind the store is
/// safe: older formats are read by everybody.
///
/// A format that a later version adds (a fingerprint, a [`Reason`](crate::Reason), a stored message) has its first version here,
/// and is written from that one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Formats(u32);

impl Formats {
    /// Formats that every released program reads.
    pub const OLDEST: Formats = Formats(1);

    /// Newest formats that this program writes. A store that no older program may open gets them.
    pub const CURRENT: Formats = Formats(1);

    /// Returns the formats that programs of this schema version read.
    pub const fn of_version(version: u32) -> Formats {
        Formats(version)
    }

    /// Returns the schema version of the oldest programs that read these formats.
    pub const fn version(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_formats_are_never_newer_than_those_of_this_program() {
        assert!(Formats::OLDEST <= Formats::CURRENT);
        assert_eq!(Formats::of_version(Formats::CURRENT.version()), Formats::CURRENT);
    }
}
