//! The stored certificates, for a command that reads them while no Sluice runs.

use std::io;
use std::path::Path;

use super::record::{self, Record};
use super::state::{State, state_of};
use crate::sys::disk::private::PrivateFolder;
use crate::tls;

/// Returns the states of these certificates, each given by its names, as the folder has them. A certificate that is
/// missing or damaged has a state without an issuer.
///
/// # Errors
///
/// The folder can't be read.
pub fn stored(
    folder: &Path,
    certificates: &[Vec<String>],
    now_unix_s: i64,
) -> io::Result<Vec<State>> {
    let storage = PrivateFolder::read_only(folder);
    let states = certificates.iter().map(|names| {
        let record = Record::read(&storage, names)?;
        let text = record::read_pem(&storage, names)?;
        let certificate = text.and_then(|text| tls::parse(&text).ok());
        Ok(state_of(&record, certificate.as_ref(), None, now_unix_s))
    });
    states.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acme::storage;

    #[test]
    fn the_state_of_a_stored_certificate_is_known_without_a_manager() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let names = |name: &str| vec![name.to_owned()];
        let all = [names("a.example"), names("b.example")];
        assert_eq!(stored(&folder.path().join("none"), &all, 0)?.len(), 2);
        let storage = storage::in_folder(folder.path())?;
        let pair =
            sluice_lab::certificates::Authority::new("Test authority").server(&["a.example"]);
        record::write_pem(&*storage, &all[0], &pair.key, &pair.certificate)?;
        let mut record = Record::read(&*storage, &all[1])?;
        record.fail("refused", "", 7);
        record.write(&*storage)?;
        let states = stored(folder.path(), &all, 0)?;
        assert!(
            states[0]
                .issuer
                .as_deref()
                .is_some_and(|issuer| issuer.contains("Test authority"))
        );
        assert_eq!((states[1].failures, &states[1].issuer), (1, &None));
        Ok(())
    }
}
