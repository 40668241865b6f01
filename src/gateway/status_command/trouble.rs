//! What to do if there is no TLS with the admin port.

use std::error::Error;

use rustls::CertificateError;

use base::telemetry::causes;

/// What to do about an error of TLS; `None` if it is about something else. `has_authority`: whether the command line
/// names the authorities.
#[expect(clippy::wildcard_enum_match_arm, reason = "there is nothing to do about the others, and there may be more")]
pub(super) fn advice(error: &(dyn Error + 'static), has_authority: bool) -> Option<&'static str> {
    causes(error).find_map(|error| match error.downcast_ref()? {
        rustls::Error::InvalidCertificate(error) => Some(of_certificate(error, has_authority)),
        rustls::Error::InvalidMessage(_) => {
            Some("it does not answer in TLS; if it speaks plain HTTP, write http:// in place of https://")
        }
        _ => None,
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the others are rare, and there may be more")]
fn of_certificate(error: &CertificateError, has_authority: bool) -> &'static str {
    match error {
        // A bad signature is that of another authority of the same name, like one that was made anew.
        CertificateError::UnknownIssuer | CertificateError::BadSignature if has_authority => {
            "its certificate is not issued by an authority in the file of --certificate-authority; name the file with \
             the one that has issued it"
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is issued by an authority that this system does not trust; name the file of that \
             authority with --certificate-authority"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for other names, or has none as subject alternative names; use one of its names in \
             --admin"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired, or the clock of this machine is wrong"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet, or the clock of this machine is wrong"
        }
        CertificateError::Other(error) if is_of_authority(&*error.0) => {
            "its certificate is that of an authority (CA:TRUE), which cannot be a server's; issue one for the server"
        }
        _ => "its certificate cannot be used",
    }
}

/// Whether the server shows the certificate of an authority as its own, as one made with `openssl req -x509`.
fn is_of_authority(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// Whether an answer is that of a server with TLS to plain HTTP: of Go's servers, of gateways, and of nginx.
pub(super) fn is_refusal_of_http(body: &[u8]) -> bool {
    let body = String::from_utf8_lossy(body);
    body.contains("HTTP request to an HTTPS server") || body.contains("HTTP request was sent to HTTPS port")
}
