//! The file that events go to.
//!
//! Invariant: a line is whole, or it is the last one of its file. A disk that is full cuts a line anywhere; it is completed when
//! there is room again. Where that cannot be, the line is written once more, on a line of its own.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

/// The path that means standard output.
const STANDARD_OUTPUT: &str = "-";

/// Lines on their way into a file.
#[derive(Debug)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    written: usize,
}

impl Lines {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, written: 0 }
    }

    /// What is not written yet.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Lines that are not written as a whole.
    pub(super) fn left(&self) -> usize {
        memchr::memchr_iter(b'\n', self.rest()).count()
    }

    pub(super) fn advance(&mut self, written: usize) {
        self.written += written;
    }

    /// Where the line begins in which the rest does.
    fn start_of_line(&self) -> usize {
        memchr::memrchr(b'\n', &self.bytes[..self.written]).map_or(0, |end| end + 1)
    }

    fn is_cut(&self) -> bool {
        self.written != self.start_of_line()
    }

    /// Writes a line that was cut from its beginning.
    fn start_line_again(&mut self) {
        self.written = self.start_of_line();
    }
}

/// Standard output, or a file and where it should be.
#[derive(Debug)]
pub(super) struct AuditFile {
    file: File,
    /// None for standard output.
    path: Option<PathBuf>,
    /// The file ends with a line that was cut, and that is not completed.
    ends_within_line: bool,
    /// Its length when a write failed.
    failed_at: Option<u64>,
}

impl AuditFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new(STANDARD_OUTPUT) {
            // Without the buffer of std, which does not say how much was written.
            let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            return Ok(Self { file, path: None, ends_within_line: false, failed_at: None });
        }
        let file = append(path)?;
        Ok(Self { file, path: Some(path.to_owned()), ends_within_line: ends_within_line(path), failed_at: None })
    }

    /// Writes what is left of the lines. After an error, the next call goes on with the same lines.
    pub(super) fn write(&mut self, lines: &mut Lines) -> io::Result<()> {
        self.follow(lines)?;
        let written = self.write_rest(lines);
        if written.is_err() {
            self.failed_at = self.length();
        }
        written
    }

    /// Log rotation moves the file away, or truncates it: then a line that was cut is not completed.
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

    /// None of what is no regular file.
    fn length(&self) -> Option<u64> {
        self.file.metadata().ok().filter(fs::Metadata::is_file).map(|file| file.len())
    }
}

/// Names and groups are for the operator alone to read.
fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    Ok(fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (open.dev(), open.ino())))
}

/// Whether a regular file ends with something else than a whole line. A file that may not be read is taken for whole.
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

    /// So far has the disk taken them before it was full.
    fn cut(file: &mut AuditFile, text: &str, at: usize) -> Lines {
        let mut lines = lines(text);
        file.file.write_all(&text.as_bytes()[..at]).unwrap();
        lines.advance(at);
        file.failed_at = file.length();
        lines
    }

    #[test]
    fn a_file_that_was_moved_away_is_made_anew() {
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
        // Moved away.
        let mut lines = cut(&mut file, "first\nsecond\n", 8);
        fs::rename(&path, folder.path().join("moved")).unwrap();
        file.write(&mut lines).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second\n");
        // Emptied in its place.
        let mut lines = cut(&mut file, "third\n", 2);
        fs::write(&path, "").unwrap();
        file.write(&mut lines).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "third\n");
        // Another process has written.
        let mut lines = cut(&mut file, "fourth\n", 2);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"other\n").unwrap();
        file.write(&mut lines).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "third\nfoother\nfourth\n");
    }

    #[test]
    fn what_an_earlier_process_left_unfinished_spoils_no_line() {
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
