//! The file that events are written to.
//!
//! Invariant: every line is complete, except possibly the last one of a file. A full disk may cut a line anywhere; it
//! is completed when there is room again. Where that is not possible, the line is written again in full, on a line of
//! its own.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

/// The path that stands for standard output.
const STANDARD_OUTPUT: &str = "-";

/// Lines that are being written to a file.
#[derive(Debug)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    written: usize,
}

impl Lines {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, written: 0 }
    }

    /// The bytes that are not written yet.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Number of lines that are not completely written.
    pub(super) fn left(&self) -> usize {
        memchr::memchr_iter(b'\n', self.rest()).count()
    }

    pub(super) fn advance(&mut self, written: usize) {
        self.written += written;
    }

    /// Start of the line that contains the first unwritten byte.
    fn start_of_line(&self) -> usize {
        memchr::memrchr(b'\n', &self.bytes[..self.written]).map_or(0, |end| end + 1)
    }

    fn is_cut(&self) -> bool {
        self.written != self.start_of_line()
    }

    /// Goes back to the beginning of a line that was cut.
    fn start_line_again(&mut self) {
        self.written = self.start_of_line();
    }
}

/// Standard output, or an open file and its path.
#[derive(Debug)]
pub(super) struct AuditFile {
    file: File,
    /// `None` for standard output.
    path: Option<PathBuf>,
    /// Whether the file ends with a cut line that will not be completed.
    ends_within_line: bool,
    /// The file's length when a write failed.
    failed_at: Option<u64>,
}

impl AuditFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new(STANDARD_OUTPUT) {
            // Bypasses the buffer of std, which does not report how much was written.
            let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            return Ok(Self { file, path: None, ends_within_line: false, failed_at: None });
        }
        let file = append(path)?;
        Ok(Self { file, path: Some(path.to_owned()), ends_within_line: ends_within_line(path), failed_at: None })
    }

    /// Writes the rest of the lines. After an error, call it again with the same lines.
    pub(super) fn write(&mut self, lines: &mut Lines) -> io::Result<()> {
        self.follow(lines)?;
        let written = self.write_rest(lines);
        if written.is_err() {
            self.failed_at = self.length();
        }
        written
    }

    /// Reopens the file if log rotation has moved it. A cut line is not completed if the file was moved, truncated or
    /// written to since.
    fn follow(&mut self, lines: &mut Lines) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        if !is_at(&self.file, path)? {
            self.file = append(path)?;
        } else if !lines.is_cut() || self.length() == self.failed_at {
            return Ok(());
        }
        self.ends_within_line = ends_within_line(path);
        lines.start_line_again();
        Ok(())
    }

    fn write_rest(&mut self, lines: &mut Lines) -> io::Result<()> {
        if self.ends_within_line {
            self.file.write_all(b"\n")?;
            self.ends_within_line = false;
        }
        while !lines.rest().is_empty() {
            match self.file.write(lines.rest()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => lines.advance(written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// `None` for anything but a regular file.
    fn length(&self) -> Option<u64> {
        self.file.metadata().ok().filter(fs::Metadata::is_file).map(|file| file.len())
    }
}

/// Opens the file to append; only its owner may read it, since it contains names and groups.
fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    Ok(fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (open.dev(), open.ino())))
}

/// Whether a regular file ends with an incomplete line. A file that cannot be read is taken to be complete.
fn ends_within_line(path: &Path) -> bool {
    let last_byte = || {
        let mut last = [0];
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        io::Result::Ok(last[0])
    };
    let has_bytes = fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0);
    has_bytes && last_byte().is_ok_and(|last| last != b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Lines {
        Lines::new(text.into())
    }

    /// Simulates a disk that was full after `at` bytes of the text.
    fn cut(file: &mut AuditFile, text: &str, at: usize) -> Lines {
        let mut lines = lines(text);
        file.file.write_all(&text.as_bytes()[..at]).unwrap();
        lines.advance(at);
        file.failed_at = file.length();
        lines
    }

    #[test]
    fn a_file_that_was_moved_away_is_created_again() {
        let folder = tempfile::tempdir().unwrap();
        let [path, moved] = ["audit.log", "audit.log.1"].map(|name| folder.path().join(name));
        let mut file = AuditFile::open(&path).unwrap();
        file.write(&mut lines("first\n")).unwrap();
        fs::rename(&path, &moved).unwrap();
        file.write(&mut lines("second\n")).unwrap();
        assert_eq!(
            (fs::read_to_string(&moved).unwrap(), fs::read_to_string(&path).unwrap()),
            ("first\n".into(), "second\n".into())
        );
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_line_that_was_cut_is_completed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut file = AuditFile::open(&path).unwrap();
        for at in [0, 2, 6, 8] {
            let mut lines = cut(&mut file, "first\nsecond\n", at);
            file.write(&mut lines).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "first\nsecond\n".repeat(4));
    }

    #[test]
    fn a_line_that_cannot_be_completed_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut file = AuditFile::open(&path).unwrap();
        // The file was moved away.
        let mut lines = cut(&mut file, "first\nsecond\n", 8);
        fs::rename(&path, folder.path().join("moved")).unwrap();
        file.write(&mut lines).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second\n");
        // It was truncated in place.
        let mut lines = cut(&mut file, "third\n", 2);
        fs::write(&path, "").unwrap();
        file.write(&mut lines).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "third\n");
        // Another process has written to it.
        let mut lines = cut(&mut file, "fourth\n", 2);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"other\n").unwrap();
        file.write(&mut lines).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "third\nfoother\nfourth\n");
    }

    #[test]
    fn a_line_left_incomplete_by_an_earlier_process_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        for (left, expected) in [("", "new\n"), ("old\n", "old\nnew\n"), ("old\nhal", "old\nhal\nnew\n")] {
            fs::write(&path, left).unwrap();
            AuditFile::open(&path).unwrap().write(&mut lines("new\n")).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        }
    }

    #[test]
    fn a_full_device_is_an_error_and_nothing_counts_as_written() {
        let mut file = AuditFile::open(Path::new("/dev/full")).unwrap();
        let mut lines = lines("first\n");
        assert_eq!(file.write(&mut lines).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!((lines.rest(), lines.left()), (&b"first\n"[..], 1));
    }
}
