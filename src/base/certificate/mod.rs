//! The fields of X.509 certificates that webpki does not give away: names, purposes and validity. Pure.
//!
//! Certificates are parsed as strictly as the API server parses them, with Go's crypto/x509: nothing may follow the
//! DER, no extension may occur twice, strings may only have characters of their type's alphabet, and serial numbers
//! must not be negative. The content of other extensions is not checked. So the gateway accepts some certificates with
//! which the API server refuses a handshake, for example one whose alternative name is not a valid URI. That is no
//! risk: they are signed by an authority, and identify the same user.

#![expect(clippy::result_large_err, reason = "asn1's error, in the code that its macros generate, too")]

use std::ops::RangeInclusive;

use asn1::{BigInt, BigUint, BitString, ObjectIdentifier, ParseError, Sequence, SequenceOf, Tag, Tlv};

/// A certificate that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a certificate, or one with a subject or an extension that cannot be read")]
pub struct Unreadable;

/// What a certificate says of itself. Its signature is not verified here.
#[derive(Debug, PartialEq, Eq)]
pub struct Certificate {
    pub version: Version,
    /// The validity period in seconds since 1970, both ends included.
    pub valid: RangeInclusive<i64>,
    /// Of the subject, in its order; a common name may be given several times.
    pub common_names: Vec<String>,
    pub organizations: Vec<String>,
    /// `cA` of the basic constraints, if it has these.
    pub is_authority: Option<bool>,
    /// `keyCertSign` of the key usage, if it has that.
    pub signs_certificates: Option<bool>,
    /// Whether the extended key usage, if it has that, allows TLS clients.
    pub is_for_clients: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
    V3,
}

// RFC 5280, 4.1. Members that are not read are there for their order. What DEFAULT stands for may be written out, which
// is no DER, but what Go reads.

#[derive(asn1::Asn1Read)]
struct Signed<'a> {
    to_be_signed: ToBeSigned<'a>,
    _algorithm: Sequence<'a>,
    _signature: BitString<'a>,
}

#[derive(asn1::Asn1Read)]
struct ToBeSigned<'a> {
    #[explicit(0)]
    version: Option<u8>,
    /// Not negative: Go refuses that since 1.23.
    _serial_number: BigUint<'a>,
    _algorithm: Sequence<'a>,
    _issuer: Sequence<'a>,
    validity: Validity,
    subject: SequenceOf<'a, RelativeName<'a>>,
    _public_key: Sequence<'a>,
    #[implicit(1)]
    _issuer_id: Option<BitString<'a>>,
    #[implicit(2)]
    _subject_id: Option<BitString<'a>>,
    #[explicit(3)]
    extensions: Option<SequenceOf<'a, Extension<'a>>>,
}

#[derive(asn1::Asn1Read)]
struct Validity {
    not_before: Time,
    not_after: Time,
}

#[derive(asn1::Asn1Read)]
enum Time {
    Utc(asn1::UtcTime),
    Generalized(asn1::X509GeneralizedTime),
}

/// A SET OF attributes, read by hand: Go does not look at the order that DER demands.
type RelativeName<'a> = Tlv<'a>;
/// The tag of a SET.
const SET: &[u8] = &[0x31];

#[derive(asn1::Asn1Read)]
struct Attribute<'a> {
    kind: ObjectIdentifier,
    value: Tlv<'a>,
}

#[derive(asn1::Asn1Read)]
struct Extension<'a> {
    id: ObjectIdentifier,
    _critical: Option<bool>,
    value: &'a [u8],
}

#[derive(asn1::Asn1Read)]
struct BasicConstraints<'a> {
    is_authority: Option<bool>,
    _path_length: Option<BigInt<'a>>,
}

const COMMON_NAME: ObjectIdentifier = asn1::oid!(2, 5, 4, 3);
const ORGANIZATION: ObjectIdentifier = asn1::oid!(2, 5, 4, 10);
const KEY_USAGE: ObjectIdentifier = asn1::oid!(2, 5, 29, 15);
const BASIC_CONSTRAINTS: ObjectIdentifier = asn1::oid!(2, 5, 29, 19);
const EXTENDED_KEY_USAGE: ObjectIdentifier = asn1::oid!(2, 5, 29, 37);
const ANY_PURPOSE: ObjectIdentifier = asn1::oid!(2, 5, 29, 37, 0);
const CLIENT_AUTH: ObjectIdentifier = asn1::oid!(1, 3, 6, 1, 5, 5, 7, 3, 2);
/// The bit of the key usage that allows signing certificates.
const KEY_CERT_SIGN: usize = 5;

impl Certificate {
    pub fn parse(der: &[u8]) -> Result<Self, Unreadable> {
        let Signed { to_be_signed: fields, .. } = asn1::parse_single(der).map_err(unreadable)?;
        let version = match fields.version {
            None | Some(0) => Version::V1,
            Some(1) => Version::V2,
            Some(2) => Version::V3,
            Some(_) => return Err(Unreadable),
        };
        let valid = fields.validity.not_before.seconds()?..=fields.validity.not_after.seconds()?;
        let mut read = Self {
            version,
            valid,
            common_names: Vec::new(),
            organizations: Vec::new(),
            is_authority: None,
            signs_certificates: None,
            is_for_clients: None,
        };
        for name in fields.subject {
            read.add_name(name)?;
        }
        let mut seen = Vec::new();
        for extension in fields.extensions.into_iter().flatten() {
            if seen.contains(&extension.id) {
                return Err(Unreadable);
            }
            read.add_extension(&extension).map_err(unreadable)?;
            seen.push(extension.id);
        }
        Ok(read)
    }

    fn add_name(&mut self, name: RelativeName<'_>) -> Result<(), Unreadable> {
        if name.tag_bytes() != SET {
            return Err(Unreadable);
        }
        let attributes = asn1::parse(name.data(), |parser| {
            let mut attributes = Vec::new();
            while !parser.is_empty() {
                attributes.push(parser.read_element::<Attribute<'_>>()?);
            }
            Ok::<_, ParseError>(attributes)
        });
        for Attribute { kind, value } in attributes.map_err(unreadable)? {
            let text = text(&value)?;
            let texts = match kind {
                COMMON_NAME => &mut self.common_names,
                ORGANIZATION => &mut self.organizations,
                _ => continue,
            };
            texts.push(text.ok_or(Unreadable)?.to_owned());
        }
        Ok(())
    }

    fn add_extension(&mut self, extension: &Extension<'_>) -> Result<(), ParseError> {
        match extension.id {
            BASIC_CONSTRAINTS => {
                let constraints: BasicConstraints<'_> = asn1::parse_single(extension.value)?;
                self.is_authority = Some(constraints.is_authority.unwrap_or(false));
            }
            KEY_USAGE => {
                let usage: BitString<'_> = asn1::parse_single(extension.value)?;
                self.signs_certificates = Some(usage.has_bit_set(KEY_CERT_SIGN));
            }
            EXTENDED_KEY_USAGE => {
                let mut purposes: SequenceOf<'_, ObjectIdentifier> = asn1::parse_single(extension.value)?;
                self.is_for_clients = Some(purposes.any(|purpose| [ANY_PURPOSE, CLIENT_AUTH].contains(&purpose)));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Time {
    fn seconds(&self) -> Result<i64, Unreadable> {
        let time = match self {
            Self::Utc(time) => time.as_datetime(),
            Self::Generalized(time) => time.as_datetime(),
        };
        let year = i16::try_from(time.year()).map_err(|_| Unreadable)?;
        let [month, day, hour, minute, second] =
            [time.month(), time.day(), time.hour(), time.minute(), time.second()].map(u8::cast_signed);
        let civil = jiff::civil::DateTime::new(year, month, day, hour, minute, second, 0).map_err(|_| Unreadable)?;
        let instant = jiff::tz::TimeZone::UTC.to_timestamp(civil).map_err(|_| Unreadable)?;
        Ok(instant.as_second())
    }
}

const UTF8_STRING: Tag = Tag::primitive(12);
const NUMERIC_STRING: Tag = Tag::primitive(18);
const PRINTABLE_STRING: Tag = Tag::primitive(19);
const T61_STRING: Tag = Tag::primitive(20);
const IA5_STRING: Tag = Tag::primitive(22);
const BMP_STRING: Tag = Tag::primitive(30);

/// The text of an attribute; `None` in an encoding that Go's releases read in different ways, or only some of them.
fn text<'a>(value: &Tlv<'a>) -> Result<Option<&'a str>, Unreadable> {
    let bytes = value.data();
    let is_valid = match value.tag() {
        UTF8_STRING => true,
        NUMERIC_STRING => bytes.iter().all(|byte| matches!(byte, b'0'..=b'9' | b' ')),
        PRINTABLE_STRING => bytes.iter().all(|byte| is_printable(*byte)),
        IA5_STRING => bytes.is_ascii(),
        T61_STRING if bytes.is_ascii() => true,
        T61_STRING => return Ok(None),
        BMP_STRING if bytes.len().is_multiple_of(2) => return Ok(None),
        _ => false,
    };
    let text = if is_valid { std::str::from_utf8(bytes).ok() } else { None };
    text.map(Some).ok_or(Unreadable)
}

/// X.680's alphabet, and two characters that authorities often add, and Go allows.
fn is_printable(byte: u8) -> bool {
    let others = b" '()+,-./:=?*&";
    byte.is_ascii_alphanumeric() || others.contains(&byte)
}

fn unreadable(_: ParseError) -> Unreadable {
    Unreadable
}

#[cfg(test)]
mod tests;
