//! Certificates as others may make them: odd subjects, texts, extensions, times; and what is no certificate.

use super::*;

/// A value in DER: tag, length and content.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    match length {
        [0, short @ 0..0x80] => [&[tag, short], content].concat(),
        [0, short] => [&[tag, 0x81, short], content].concat(),
        [high, low] => [&[tag, 0x82, high, low], content].concat(),
    }
}

fn sequence(members: &[&[u8]]) -> Vec<u8> {
    der(0x30, &members.concat())
}

const CN: &[u8] = &[0x55, 4, 3];
const O: &[u8] = &[0x55, 4, 10];
const SERIAL: &[u8] = &[0x55, 4, 5];
const UTF8: u8 = 12;
const NUMERIC: u8 = 18;
const PRINTABLE: u8 = 19;
const T61: u8 = 20;
const IA5: u8 = 22;
const UNIVERSAL: u8 = 28;
const BMP: u8 = 30;
const OCTETS: u8 = 4;

fn attribute(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
    sequence(&[&der(6, kind), &der(tag, value)])
}

/// One attribute in its own set.
fn name(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
    der(0x31, &attribute(kind, tag, value))
}

/// An extension of the arc 2.5.29, with `critical` as it is given.
fn extension(id: u8, critical: &[u8], value: &[u8]) -> Vec<u8> {
    sequence(&[&der(6, &[0x55, 29, id]), critical, &der(OCTETS, value)])
}

struct Fields {
    version: Vec<u8>,
    serial_number: Vec<u8>,
    validity: Vec<u8>,
    subject: Vec<u8>,
    extensions: Vec<u8>,
    behind: Vec<u8>,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            version: der(0xa0, &der(2, &[2])),
            serial_number: der(2, &[1]),
            validity: [der(0x17, b"700101000000Z"), der(0x18, b"20500102030405Z")].concat(),
            subject: Vec::new(),
            extensions: Vec::new(),
            behind: Vec::new(),
        }
    }
}

impl Fields {
    fn read(&self) -> Result<Certificate, Unreadable> {
        let algorithm = sequence(&[&der(6, &[0x2b, 0x65, 0x70])]);
        let bits = der(3, &[0, 0xff]);
        let extensions = match &self.extensions[..] {
            [] => Vec::new(),
            extensions => der(0xa3, &sequence(&[extensions])),
        };
        let signed = sequence(&[
            &self.version,
            &self.serial_number,
            &algorithm,
            &sequence(&[]),
            &sequence(&[&self.validity]),
            &sequence(&[&self.subject]),
            &sequence(&[&algorithm, &bits]),
            &extensions,
        ]);
        let certificate = [sequence(&[&signed, &algorithm, &bits]), self.behind.clone()].concat();
        Certificate::parse(&certificate)
    }
}

fn subject(names: &[Vec<u8>]) -> Result<(Vec<String>, Vec<String>), Unreadable> {
    let read = Fields { subject: names.concat(), ..Fields::default() }.read()?;
    Ok((read.common_names, read.organizations))
}

fn extended(extensions: &[Vec<u8>]) -> Result<Certificate, Unreadable> {
    Fields { extensions: extensions.concat(), ..Fields::default() }.read()
}

#[test]
fn names_are_read_in_order_in_any_grouping() {
    let several = |attributes: &[Vec<u8>]| der(0x31, &attributes.concat());
    // Not in the order that DER wants of a set.
    let grouped = several(&[attribute(O, UTF8, b"b"), attribute(CN, UTF8, b"jane"), attribute(O, UTF8, b"a")]);
    let (one, two) = (name(O, PRINTABLE, b"one"), name(O, UTF8, "zwölf".as_bytes()));
    let names = [one, name(CN, PRINTABLE, b"first"), grouped, two, name(SERIAL, PRINTABLE, b"7")];
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert_eq!(subject(&names), Ok((texts(&["first", "jane"]), texts(&["one", "b", "a", "zwölf"]))));
    assert_eq!(subject(&[name(O, UTF8, b"x"), name(O, UTF8, b"x")]), Ok((Vec::new(), texts(&["x", "x"]))));
    assert_eq!(subject(&[several(&[])]), Ok((Vec::new(), Vec::new())));
    assert_eq!(subject(&[name(CN, UTF8, b"")]), Ok((texts(&[""]), Vec::new())));
    assert_eq!(subject(&[]), Ok((Vec::new(), Vec::new())));
}

/// As parseASN1String of Go's crypto/x509 does it, where all releases do the same.
#[test]
fn a_text_is_read_if_it_is_valid_in_its_encoding() {
    for (tag, value, expected) in [
        (UTF8, "jané\u{0}/@_".as_bytes(), Some("jané\u{0}/@_")),
        (UTF8, b"\xff", None),
        (PRINTABLE, b"system:node:a-1.b (c)+,/=?'*&", Some("system:node:a-1.b (c)+,/=?'*&")),
        (PRINTABLE, b"jane@example", None),
        (PRINTABLE, b"jane_doe", None),
        (PRINTABLE, "é".as_bytes(), None),
        (IA5, b"jane@example_\x7f", Some("jane@example_\x7f")),
        (IA5, "é".as_bytes(), None),
        (NUMERIC, b"12 3", Some("12 3")),
        (NUMERIC, b"12a", None),
        (T61, b"jane", Some("jane")),
        // Latin-1 in some releases, bytes in others.
        (T61, b"jan\xe9", None),
        (BMP, b"\0j\0a", None),
        (UNIVERSAL, b"\0\0\0j", None),
        (OCTETS, b"jane", None),
        // A text in parts, which is no DER.
        (UTF8 | 0x20, &der(UTF8, b"jane"), None),
    ] {
        let read = subject(&[name(CN, tag, value)]).map(|(names, _)| names);
        assert_eq!(read, expected.map(|text| vec![text.to_owned()]).ok_or(Unreadable), "{tag} {value:?}");
        assert_eq!(subject(&[name(O, tag, value)]).is_ok(), expected.is_some(), "{tag} {value:?}");
    }
}

#[test]
fn unused_attributes_must_be_valid_strings() {
    let of = |tag, value| subject(&[name(CN, UTF8, b"jane"), name(SERIAL, tag, value)]).is_ok();
    assert!(of(PRINTABLE, b"7") && of(T61, b"\xe9") && of(BMP, b"\0j"));
    assert!(!of(PRINTABLE, b"_") && !of(BMP, b"j") && !of(OCTETS, b"j") && !of(UNIVERSAL, b"\0\0\0j"));
    let long = attribute(CN, UTF8, b"jane");
    assert_eq!(subject(&[der(0x31, &long[..long.len() - 1])]), Err(Unreadable));
    assert_eq!(subject(&[long]), Err(Unreadable), "an attribute without a set");
}

#[test]
fn versions_and_times_are_read() {
    let written = |version: u8| der(0xa0, &der(2, &[version]));
    for (version, expected) in [
        (Vec::new(), Ok(Version::V1)),
        (written(0), Ok(Version::V1)),
        (written(1), Ok(Version::V2)),
        (written(2), Ok(Version::V3)),
        (written(3), Err(Unreadable)),
    ] {
        assert_eq!(Fields { version, ..Fields::default() }.read().map(|read| read.version), expected);
    }
    assert_eq!(Fields::default().read().unwrap().valid, 0..=2_524_705_445);
    for times in [
        [der(0x17, b"701301000000Z"), der(0x17, b"700101000000Z")],
        [der(0x17, b"700101000000Z"), der(0x18, b"700101000000Z")],
        [der(0x17, b"700101000000Z"), der(0x16, b"700101000000Z")],
        [der(0x17, b"700101000000Z"), Vec::new()],
    ] {
        assert_eq!(Fields { validity: times.concat(), ..Fields::default() }.read(), Err(Unreadable), "{times:?}");
    }
}

#[test]
fn extensions_are_read_and_none_is_there_twice() {
    let (yes, no) = (der(1, &[0xff]), der(1, &[0]));
    let none = extended(&[]).unwrap();
    assert_eq!((none.is_authority, none.signs_certificates, none.is_for_clients), (None, None, None));
    for (constraints, expected) in [
        (sequence(&[]), Some(false)),
        (sequence(&[&yes]), Some(true)),
        (sequence(&[&no]), Some(false)),
        (sequence(&[&yes, &der(2, &[3])]), Some(true)),
    ] {
        assert_eq!(extended(&[extension(19, &yes, &constraints)]).unwrap().is_authority, expected);
    }
    for (usage, expected) in [([2, 0b100], true), ([7, 0b1000_0000], false), ([1, 0b0000_0110], true)] {
        let read = extended(&[extension(15, &no, &der(3, &usage))]).unwrap();
        assert_eq!(read.signs_certificates, Some(expected), "{usage:?}");
    }
    let (any, client) = ([0x55, 29, 37, 0], [0x2b, 6, 1, 5, 5, 7, 3, 2]);
    let server = [0x2b, 6, 1, 5, 5, 7, 3, 1];
    for (purposes, expected) in [
        (vec![], false),
        (vec![der(6, &server)], false),
        (vec![der(6, &server), der(6, &client)], true),
        (vec![der(6, &any)], true),
    ] {
        let read = extended(&[extension(37, &[], &der(0x30, &purposes.concat()))]).unwrap();
        assert_eq!(read.is_for_clients, Some(expected), "{purposes:?}");
    }
    let (unknown, twice) = (extension(99, &yes, b"x"), extension(19, &[], &sequence(&[])));
    assert!(extended(&[unknown.clone(), twice.clone()]).is_ok());
    assert_eq!(extended(&[twice.clone(), unknown.clone(), twice]), Err(Unreadable));
    assert_eq!(extended(&[unknown.clone(), unknown]), Err(Unreadable));
    for (id, value) in [(19, b"x".to_vec()), (15, der(3, &[9, 1])), (15, der(3, &[1, 1])), (37, sequence(&[&yes]))] {
        assert_eq!(extended(&[extension(id, &[], &value)]), Err(Unreadable), "{id} {value:?}");
    }
}

/// As parseCertificate of Go's crypto/x509 does it since Go 1.23, with which API servers from 1.32 on are built.
#[test]
fn a_serial_number_is_not_negative() {
    for (number, is_read) in [(&[0][..], true), (&[0, 0x91], true), (&[0x91], false), (&[0, 1], false), (&[], false)] {
        let read = Fields { serial_number: der(2, number), ..Fields::default() }.read();
        assert_eq!(read.is_ok(), is_read, "{number:?}");
    }
}

#[test]
fn truncated_and_extended_certificates_are_refused_without_panics() {
    assert_eq!(Fields { behind: vec![0], ..Fields::default() }.read(), Err(Unreadable));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let whole = made.cert.der();
    assert!(Certificate::parse(whole).is_ok());
    for end in 0..whole.len() {
        assert_eq!(Certificate::parse(&whole[..end]), Err(Unreadable), "{end}");
    }
    for at in 0..whole.len() {
        let mut changed = whole.to_vec();
        changed[at] ^= 0xff;
        Certificate::parse(&changed).ok();
    }
}
