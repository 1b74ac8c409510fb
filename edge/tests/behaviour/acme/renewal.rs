//! Tests of the renewal of certificates, and of many of them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sluice_lab::load::{LoadPlan, LoadTls, run_apart};

use super::Bed;

#[test]
fn certificates_are_renewed_while_requests_come_and_no_handshake_fails() {
    let name = "cdn.example.com";
    let bed = Bed::new(&[name], |options| options.validity_s = 15);
    let _edge = bed.start("", &[name]);
    bed.wait_served(name);
    let (is_over, handshakes) = (AtomicBool::new(false), AtomicUsize::new(0));
    let authority = bed.pebble.authority().expect("pebble's authority");
    let file = bed.folder.path().join("authority.der");
    std::fs::write(&file, authority).expect("a file");
    thread::scope(|scope| {
        let hands = scope.spawn(|| {
            let mut certificates = vec![bed.certificate(name)];
            while !is_over.load(Ordering::SeqCst) {
                // Verifies the certificate, and so that it has not ended.
                let certificate = bed.certificate(name);
                if certificates.last() != Some(&certificate) {
                    certificates.push(certificate);
                }
                handshakes.fetch_add(1, Ordering::SeqCst);
            }
            certificates.len()
        });
        let mut plan = LoadPlan::new(([127, 0, 0, 1], bed.https).into(), "/");
        plan.host = name.to_owned();
        plan.tls = Some(LoadTls {
            authority: file.clone(),
            name: name.to_owned(),
            group: None,
            resumed: false,
        });
        plan.connections = 16;
        plan.rate = Some(2000.0);
        plan.seconds = Some(25.0);
        let result = run_apart(plan);
        // Also after an error, since the scope waits for its threads.
        is_over.store(true, Ordering::SeqCst);
        let result = result.expect("a load");
        assert_eq!(result.errors.total(), 0, "{:?}", result.errors);
        assert!(result.requests > 20_000, "{}", result.requests);
        assert!(hands.join().expect("every handshake succeeds") >= 2);
    });
    assert!(handshakes.load(Ordering::SeqCst) > 100);
}

#[test]
fn five_hundred_names_get_their_certificates() {
    let names: Vec<String> = (0..500).map(|n| format!("{n}.example.com")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bed = Bed::new(&names, |_| {});
    let edge = bed.start("orders = 500", &names);
    let begun = Instant::now();
    loop {
        let there = bed
            .state()
            .join("certificates")
            .read_dir()
            .map_or(0, |files| {
                let names = files.flatten().map(|file| file.file_name());
                names
                    .filter(|name| name.as_encoded_bytes().ends_with(b".pem"))
                    .count()
            });
        if there == names.len() {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(300),
            "{there} are there"
        );
        thread::sleep(Duration::from_millis(200));
    }
    for name in names.iter().step_by(50) {
        assert_eq!(bed.wait_served(name), "hello");
    }
    assert_eq!(bed.pebble.orders(), names.len());
    let messages = edge.process.stderr();
    assert!(
        messages.contains("of 500 certificates are there"),
        "{messages}"
    );
}
