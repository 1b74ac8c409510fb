//! Tests of HTTP/2 to origins with real servers: nginx and HAProxy in clear text, which pass the requests on to the test origin,
//! and a server in Go with TLS.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::thread;

use sluice_lab::certificates::Authority;
use sluice_lab::origin::{Origin, Resource};
use sluice_lab::process::{Launch, Process, free_port};

use crate::harness::{Edge, SOON, Setup, assert_hit, fresh, origin};
use crate::tools::{build_go, installed};

const LENGTH: u64 = 3_000_000;

const GO: &str = include_str!("scripts/http2_server.go");

/// Starts nginx with HTTP/2 in clear text. Each of its connections ends after 40 requests.
fn nginx(folder: &Path, origin: SocketAddr) -> (Process, SocketAddr) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().expect("a port")));
    let user = match rustix::process::geteuid().is_root() {
        true => "user root;\n",
        false => "",
    };
    let own = folder.display();
    let text = format!(
        "{user}daemon off;
worker_processes 1;
pid {own}/nginx.pid;
error_log {own}/error.log error;
events {{ worker_connections 500; }}
http {{
  access_log off;
  client_body_temp_path {own}/body;
  proxy_temp_path {own}/proxy;
  fastcgi_temp_path {own}/fastcgi;
  uwsgi_temp_path {own}/uwsgi;
  scgi_temp_path {own}/scgi;
  keepalive_requests 40;
  client_max_body_size 0;
  server {{
    listen {address} http2;
    location / {{
      proxy_pass http://{origin};
      proxy_http_version 1.1;
      proxy_set_header Host $host;
      proxy_buffering off;
      proxy_request_buffering off;
    }}
  }}
}}
"
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, text).expect("written");
    let [own, file] = [folder, &file].map(|path| path.display().to_string());
    let log = folder.join("error.log").display().to_string();
    let mut process = Launch::new("nginx", "nginx", folder)
        .args(["-p", &own, "-c", &file, "-e", &log])
        .start()
        .expect("nginx starts");
    process
        .wait_listening(address, SOON)
        .expect("nginx listens");
    (process, address)
}

/// Starts HAProxy with HTTP/2 in clear text.
fn haproxy(folder: &Path, origin: SocketAddr) -> (Process, SocketAddr) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().expect("a port")));
    let text = format!(
        "defaults
  mode http
  timeout connect 30s
  timeout client 60s
  timeout server 60s
frontend f
  bind {address} proto h2
  default_backend b
backend b
  server s {origin}
"
    );
    let file = folder.join("haproxy.cfg");
    fs::write(&file, text).expect("written");
    let mut process = Launch::new("haproxy", "haproxy", folder)
        .args(["-db", "-f", &file.display().to_string()])
        .start()
        .expect("HAProxy starts");
    process
        .wait_listening(address, SOON)
        .expect("HAProxy listens");
    (process, address)
}

fn prepared() -> Origin {
    let origin = origin();
    origin.serve("/x", fresh(LENGTH));
    origin.serve("/pass/echo", Resource::echo());
    origin.serve_rest(Resource::offset(5000));
    origin
}

/// Sends uploads, downloads, ranges and many requests at a time through a server in clear text with this address.
fn exercise(address: SocketAddr) -> Edge {
    exercise_with(&Setup::of_servers(vec![format!("h2c://{address}")]))
}

/// Sends uploads, downloads, ranges and many requests at a time through the server of this configuration.
fn exercise_with(setup: &Setup) -> Edge {
    let edge = setup.start();
    let reply = edge.get("/x", &[("range", "bytes=2000000-2000099")]);
    reply
        .verify_range(2_000_000, 2_000_099, LENGTH)
        .expect("the range");
    edge.get("/x", &[])
        .verify_whole(LENGTH)
        .expect("the origin's bytes");
    assert_hit(&edge.get("/x", &[]));
    let body: Vec<u8> = (0..2_000_000).map(|at| (at % 251) as u8).collect();
    let reply = edge.ask("POST", "/pass/echo", &[], &body);
    assert!(
        reply.status == 200 && reply.body == body,
        "{}",
        reply.status
    );
    assert_eq!(edge.ask("HEAD", "/pass/x", &[], b"").status, 200);
    thread::scope(|scope| {
        for client in 0..16 {
            let edge = &edge;
            scope.spawn(move || {
                for n in 0..25 {
                    let reply = edge.get(&format!("/pass/{client}/{n}"), &[]);
                    reply.verify_whole(5000).expect("the origin's bytes");
                }
            });
        }
    });
    edge
}

#[test]
fn nginx_serves_as_an_origin_of_http2() {
    if !installed(&["nginx"]) {
        return;
    }
    let (origin, folder) = (prepared(), tempfile::tempdir().expect("a folder"));
    let (_nginx, address) = nginx(folder.path(), origin.addr());
    let edge = exercise(address);
    // nginx ends its connections with GOAWAY, which costs no request.
    let connects = edge.counter("upstream_connects");
    assert!((8..100).contains(&connects), "{connects}");
    assert_eq!(edge.counter("upstream_failures"), 0);
}

#[test]
fn haproxy_serves_as_an_origin_of_http2() {
    if !installed(&["haproxy"]) {
        return;
    }
    let (origin, folder) = (prepared(), tempfile::tempdir().expect("a folder"));
    let (_haproxy, address) = haproxy(folder.path(), origin.addr());
    let edge = exercise(address);
    let connects = edge.counter("upstream_connects");
    assert!((1..=2).contains(&connects), "{connects}");
    assert_eq!(edge.counter("upstream_failures"), 0);
}

#[test]
fn go_serves_as_an_origin_of_http2_with_tls() {
    if !installed(&["go"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new("Test authority of servers");
    let pair = authority
        .server(&["127.0.0.1"])
        .write(folder.path(), "server");
    let pair = pair.expect("written");
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, authority.pem()).expect("written");
    build_go(folder.path(), "server", GO);
    let launch = Launch::new("server", folder.path().join("server"), folder.path());
    let files = [pair.certificate, pair.key].map(|file| file.display().to_string());
    let mut server = launch.args(files).start().expect("the server starts");
    let line = server.wait_line("listening on", SOON).expect("an address");
    let address = line.rsplit(' ').next().expect("a word");
    // The server refuses requests that are not of HTTP/2.
    let setup = Setup::of_servers(vec![format!("https://{address}")]);
    let edge = exercise_with(&setup.upstream(&format!("tls = {{ ca = {ca:?} }}")));
    let connects = edge.counter("upstream_connects");
    assert!((1..=4).contains(&connects), "{connects}");
    assert_eq!(edge.counter("upstream_failures"), 0);
}
