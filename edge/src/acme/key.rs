//! The private keys of certificates, and the requests to sign them.

use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_RSA_SHA256,
};

use super::options::KeyType;

/// Makes a key. Returns it in PEM.
///
/// # Errors
///
/// The crypto library failed.
pub fn generate(kind: KeyType) -> Result<String, String> {
    let algorithm = match kind {
        KeyType::P256 => &PKCS_ECDSA_P256_SHA256,
        KeyType::P384 => &PKCS_ECDSA_P384_SHA384,
        KeyType::Rsa2048 => &PKCS_RSA_SHA256,
    };
    let key = KeyPair::generate_for(algorithm);
    let key = key.map_err(|why| format!("no key can be made: {why}"))?;
    Ok(key.serialize_pem())
}

/// Makes the request to sign a certificate for these names (PKCS #10, RFC 8555 7.4), in DER. `key` is the private key in
/// PEM.
///
/// # Errors
///
/// The key or a name can't be used.
pub fn request(key: &str, names: &[String]) -> Result<Vec<u8>, String> {
    let wrong = |why: rcgen::Error| format!("no certificate can be requested: {why}");
    let key = KeyPair::from_pem(key).map_err(wrong)?;
    let names: Vec<String> = names
        .iter()
        .map(|name| name.trim_matches(['[', ']']).to_owned())
        .collect();
    let mut params = CertificateParams::new(names).map_err(wrong)?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(wrong)?;
    Ok(request.der().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_each_type_of_key_can_be_made() {
        for kind in [KeyType::P256, KeyType::P384, KeyType::Rsa2048] {
            let key = generate(kind).expect("a key");
            assert!(key.contains("PRIVATE KEY"));
            let names = ["a.example", "*.b.example", "[::1]"].map(str::to_owned);
            let request = request(&key, &names).expect("a request");
            let found = |text: &[u8]| memchr::memmem::find(&request, text).is_some();
            assert!(found(b"a.example") && found(b"*.b.example"));
        }
        assert!(request("no key", &[]).is_err());
    }
}
