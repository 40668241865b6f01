//! Self-signed certificates for the ports of gateways, and for authorities.

use std::{fs, path::Path};

use kube_fanout::config::TlsFiles;
use rcgen::{CertificateParams, IsCa, KeyPair};

/// Writes a self-signed certificate for this name and its key into two files of a folder, which have that name, too.
pub(crate) fn write_certificate(folder: &Path, name: &str, is_ca: IsCa) -> TlsFiles {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.is_ca = is_ca;
    let key = KeyPair::generate().unwrap();
    let [cert_file, key_file] = ["crt", "key"].map(|kind| folder.join(format!("{name}.{kind}")));
    fs::write(&cert_file, params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(&key_file, key.serialize_pem()).unwrap();
    TlsFiles { cert_file, key_file }
}
