//! Makes certificates for tests and experiments: authorities, and the certificates that they sign.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, SignatureAlgorithm,
};

/// An authority that signs certificates.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// The type of a certificate's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyType {
    /// ECDSA with P-256.
    #[default]
    Ecdsa,
    /// RSA with 2048 bits.
    Rsa,
}

/// A certificate with its issuer, and its private key, in PEM.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate, followed by that of the authority.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// The files of a certificate and its key.
#[derive(Clone, Debug)]
pub struct PairFiles {
    /// File of the certificate.
    pub certificate: PathBuf,
    /// File of the private key.
    pub key: PathBuf,
}

impl Authority {
    /// Creates an authority with this name.
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, key(KeyType::Ecdsa));
        Authority {
            issuer: issuer.expect("the parameters are valid"),
        }
    }

    /// Returns the authority's own certificate in PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Returns the authority's own certificate in DER.
    pub fn der(&self) -> Vec<u8> {
        self.issuer.der().to_vec()
    }

    /// Signs a certificate of a server for these host names and addresses.
    pub fn server(&self, names: &[&str]) -> Pair {
        self.sign(names, KeyType::Ecdsa, |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        })
    }

    /// Signs a certificate of a server with a key of this type.
    pub fn server_with(&self, names: &[&str], kind: KeyType) -> Pair {
        self.sign(names, kind, |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        })
    }

    /// Signs a certificate of a server whose validity ends this much after now, and began a day ago.
    pub fn server_until(&self, names: &[&str], left: Duration) -> Pair {
        self.server_between(names, Duration::from_secs(24 * 3600), left)
    }

    /// Signs a certificate of a server whose validity began this long ago, and ends this much after now.
    pub fn server_between(&self, names: &[&str], age: Duration, left: Duration) -> Pair {
        self.sign(names, KeyType::Ecdsa, |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            let now = SystemTime::now();
            params.not_after = (now + left).into();
            params.not_before = (now - age).into();
        })
    }

    /// Signs a certificate of a server that expired an hour ago.
    pub fn server_expired(&self, names: &[&str]) -> Pair {
        self.sign(names, KeyType::Ecdsa, |params| {
            let hour = Duration::from_secs(3600);
            let now = SystemTime::now();
            params.not_after = (now - hour).into();
            params.not_before = (now - 24 * hour).into();
        })
    }

    /// Signs a certificate of a client with this name.
    pub fn client(&self, name: &str) -> Pair {
        self.sign(&[], KeyType::Ecdsa, |params| {
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    }

    fn sign(&self, names: &[&str], kind: KeyType, change: impl Fn(&mut CertificateParams)) -> Pair {
        let hosts: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names of hosts");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        if let Some(name) = names.first() {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        change(&mut params);
        let key = key(kind);
        let certificate = params.signed_by(&key, &self.issuer);
        let certificate = certificate.expect("the parameters are valid").pem();
        Pair {
            certificate: certificate + &self.pem(),
            key: key.serialize_pem(),
        }
    }
}

/// Makes a certificate of a server that is signed with its own key, and is also that of an authority, as
/// `openssl req -x509` makes it.
pub fn self_signed(names: &[&str]) -> Pair {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names of hosts");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = key(KeyType::Ecdsa);
    let certificate = params.self_signed(&key);
    Pair {
        certificate: certificate.expect("the parameters are valid").pem(),
        key: key.serialize_pem(),
    }
}

/// Validity of the certificate of `Issued`.
const ISSUED_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// An authority, and a certificate that it signed, in a folder that is removed on drop.
pub struct Issued {
    /// Files of the certificate and its key.
    pub files: PairFiles,
    /// File of the authority's certificate, in PEM.
    pub trust: PathBuf,
    /// The authority.
    pub authority: Authority,
    _folder: tempfile::TempDir,
}

impl Issued {
    /// Creates an authority and a certificate for these names, in a folder that only this user can read. The certificate
    /// is valid for a week.
    pub fn new(authority: &str, names: &[&str]) -> io::Result<Issued> {
        let folder = tempfile::Builder::new()
            .prefix("sluice-")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir()?;
        let authority = Authority::new(authority);
        let trust = folder.path().join("ca.pem");
        fs::write(&trust, authority.pem())?;
        let pair = authority.server_until(names, ISSUED_FOR);
        let files = pair.write(folder.path(), "server")?;
        fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600))?;
        Ok(Issued {
            files,
            trust,
            authority,
            _folder: folder,
        })
    }
}

impl Pair {
    /// Writes the pair as `NAME.pem` and `NAME.key` into a folder.
    pub fn write(&self, folder: &Path, name: &str) -> io::Result<PairFiles> {
        let files = PairFiles {
            certificate: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}.key")),
        };
        fs::write(&files.certificate, &self.certificate)?;
        fs::write(&files.key, &self.key)?;
        Ok(files)
    }
}

impl PairFiles {
    /// Returns the keys of the configuration that name these files.
    pub fn keys(&self) -> String {
        format!("certificate = {:?}, key = {:?}", self.certificate, self.key)
    }
}

fn key(kind: KeyType) -> KeyPair {
    let algorithm: &SignatureAlgorithm = match kind {
        KeyType::Ecdsa => &PKCS_ECDSA_P256_SHA256,
        KeyType::Rsa => &PKCS_RSA_SHA256,
    };
    KeyPair::generate_for(algorithm).expect("the type is supported")
}
