//! Tests of the errors about unknown keys, values of the wrong type, and sections in the wrong form.

use super::*;

#[test]
fn all_unknown_keys_and_wrong_types_are_reported_in_one_run() {
    let text = "\
listen = 8080
[server]
worker = 2
[log]
level = \"warm\"
[cache.main]
memory = true
slice = \"big\"
[[site]]
hosts = [\"a\", 1]
[[site.route]]
proxy = \"http://127.0.0.1:9\"
cahce = \"main\"
[site.route.files]
indx = \"a\"
";
    let report = parse("sluice.toml", text).expect_err("errors");
    let lines: Vec<usize> = report
        .problems
        .iter()
        .map(|problem| {
            let at = problem.span.as_ref().expect("a position").start;
            text[..at].matches('\n').count() + 1
        })
        .collect();
    assert_eq!(lines, [1, 3, 5, 7, 8, 10, 13, 15], "{report}");
    insta::assert_snapshot!("all_at_once", report.render(false));
}

#[test]
fn a_key_in_the_wrong_place_is_answered_with_its_place() {
    let cases = [
        "[[site.route]]\nhosts = [\"a\"]\n",
        "[cache.main]\nlisten = \":80\"\n",
        "[[site]]\nvalid = { 200 = \"1s\" }\n",
        "[[site]]\nhost = \"a\"\n",
        "[cache.main]\nsize = \"1GiB\"\n",
        "[[route]]\ntries = 2\n",
        "[[site]]\nupstream = \"a\"\n",
        "cache = \"main\"\n",
        "nonsense = 1\n",
    ];
    let said: String = cases.iter().map(|text| said(text)).collect();
    insta::assert_snapshot!("wrong_places", said);
}

#[test]
fn words_of_other_programs_are_answered_with_the_key() {
    let nginx = ["location", "proxy_pass", "server_name", "root", "gzip"];
    let varnish = ["backend", "grace", "ttl", "probe", "hash_data"];
    let haproxy = ["frontend", "use_backend", "maxconn", "check"];
    let caddy = ["reverse_proxy", "redir", "handle_path", "header"];
    let traefik = ["entryPoints", "routers", "loadBalancer", "stripPrefix"];
    let words = [&nginx[..], &varnish, &haproxy, &caddy, &traefik].concat();
    for word in words {
        let said = said(&format!("[[site]]\n{word} = \"a\"\n"));
        assert!(said.contains("help: write "), "{said}");
    }
}

#[test]
fn a_section_in_the_wrong_form_is_answered_with_its_form() {
    let cases = [
        "[cache]\nmemory = \"64MiB\"\n[upstream]\nservers = [\"http://a\"]\n[volume]\npath = \"a\"\n",
        "[[server]]\nlisten = 80\n[[cache]]\n[[limits]]\n",
        "[listener]\naddress = \":80\"\n[site]\nhosts = \"a\"\n[route]\nproxy = \"http://a\"\n",
        "[[site]]\n[site.route]\nproxy = \"http://a\"\n",
        "server = \"a\"\nsite = \"a\"\nvolume = \"a\"\n",
    ];
    let said: String = cases.iter().map(|text| said(text)).collect();
    insta::assert_snapshot!("wrong_forms", said);
}

#[test]
fn routes_of_a_site_need_no_section_for_the_site() {
    let text = "[[site.route]]\npath = \"/a\"\nrespond = \"a\"\n[[site.route]]\nrespond = \"b\"\n";
    let plan = plan(text);
    assert_eq!((plan.sites.len(), plan.sites[0].routes.len()), (1, 2));
    assert!(plan.sites[0].hosts.is_empty());
}

#[test]
fn several_syntax_errors_are_reported_in_one_run() {
    let said = said("listen = \":80\n[server]\nworkers = = 2\n");
    assert!(said.contains(":1:") && said.contains(":3:"), "{said}");
    let twice = super::said("[server]\nworkers = 1\n[server]\nuser = \"a\"\n");
    assert!(twice.contains("each [section] once"), "{twice}");
}

#[test]
fn units_that_may_be_misread_are_warned_about() {
    let text = "\
[limits]
body = \"10M\"
send_timeout = \"10M\"
[[route]]
proxy = \"http://127.0.0.1:9\"
";
    let units = said(&text.replace("send_timeout = \"10M\"", ""));
    assert!(
        units.contains("this is 10 MiB") && units.contains("powers of 1000"),
        "{units}"
    );
    let months = said(text);
    assert!(months.contains("m a minute"), "{months}");
    let sizes = ["1G", "1g", "1 GiB", "1gib", "1073741824"];
    for size in sizes {
        let plan = plan(&with(&format!("[cache.a]\nmemory = \"{size}\"\n")));
        assert_eq!(plan.caches["a"].memory, 1 << 30, "{size}");
    }
    let plan = plan(&with("[cache.a]\nmemory = \"1GB\"\nread_ahead = \"1M\"\n"));
    assert_eq!(plan.caches["a"].memory, 1_000_000_000);
    assert_eq!(
        plan.caches["a"].fill.read_ahead,
        crate::fill::ReadAhead::Window(1 << 20)
    );
    let valid = said(&with("[cache.a]\nvalid = { 200 = \"1M\" }\n"));
    assert!(valid.contains("m a minute"), "{valid}");
}

#[test]
fn more_errors_than_are_shown_are_counted_in_the_order_of_their_lines() {
    let lines: String = (0..25)
        .map(|n| format!("{}x = 1\n", char::from(b'z' - n)))
        .collect();
    let said = said(&lines);
    let first = said.find("unknown key `zx`").expect("the first line");
    assert!(first < said.find("unknown key `yx`").expect("the second line"));
    assert!(said.contains("unknown key `gx`") && !said.contains("unknown key `fx`"));
    assert!(said.ends_with("\nand 5 more\n"), "{said}");
}

#[test]
fn values_of_another_type_with_one_meaning_get_the_exact_spelling() {
    let route = |key: &str| format!("[[route]]\nproxy = \"http://127.0.0.1:9\"\n{key}\n");
    let cases = [
        (
            "[[route]]\nrespond = 204\n".to_owned(),
            "write `respond = { status = 204 }`",
        ),
        (
            route("cache = true"),
            "write `cache = \"main\"`, and a section [cache.main]",
        ),
        (format!("listen = \"80\"\n{}", route("")), "write \":80\""),
        (route("limit_except = 1"), "write `allow_methods ="),
    ];
    for (text, help) in cases {
        let said = said(&text);
        assert!(said.contains(help), "{said}");
    }
}

#[test]
fn settings_of_tls_of_other_programs_are_answered_with_the_fix() {
    let tls = |keys: &str| format!("[tls]\n{keys}\n");
    let site =
        |tls: &str| format!("[[site]]\ntls = {{ {tls} }}\n[[site.route]]\nrespond = \"x\"\n");
    let cases = [
        (
            tls("ssl_session_cache = \"shared\""),
            "Sluice stores no sessions",
        ),
        (tls("ssl_stapling = true"), "no OCSP stapling"),
        (
            tls("ssl_reject_handshake = true"),
            "write `unknown_name = \"refuse\"`",
        ),
        (
            "[[site]]\nhsts = true\n".to_owned(),
            "write `security_headers = true`",
        ),
        (
            "[[site]]\nssl_verify_client = \"optional\"\n".to_owned(),
            "add `client_certificate = \"request\"` there",
        ),
        (
            tls("protocols = [\"TLSv1.2\"]"),
            "write `min_version = \"1.2\"`",
        ),
        (
            site("protocols = \"TLSv1.2\""),
            "write `min_version = \"1.2\"`",
        ),
        (tls("min_version = \"1.1\""), "RFC 8996"),
        (tls("min_version = \"TLSv1.3\""), "write \"1.3\""),
        (tls("tickets = true"), "tickets are on without this key"),
        (
            tls("ciphers = \"ECDHE-RSA-AES128-GCM-SHA256\""),
            "write \"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"",
        ),
        (
            tls("ciphers = \"ECDHE-ECDSA-CHACHA20-POLY1305\""),
            "write \"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256\"",
        ),
        (
            tls("ciphers = \"HIGH:!aNULL\""),
            "write a list, as in [\"TLS_AES_128_GCM_SHA256\", \"TLS_",
        ),
        (tls("groups = [\"prime256v1\"]"), "write \"P-256\""),
        (
            site("client_ca = [\"a.pem\", \"b.pem\"]"),
            "`cat a.pem b.pem > clients.pem`",
        ),
        (
            site("client_ca = \"a.pem\", client_certificate = \"optional\""),
            "write \"request\"",
        ),
        (
            site("client_ca = \"a.pem\", client_certificate = true"),
            "true and false belong in [[site]]",
        ),
        (
            "[[site]]\nclient_certificate = \"request\"\n".to_owned(),
            "belong in `tls` of the site",
        ),
    ];
    for (text, help) in cases {
        let said = said(&text);
        assert!(said.contains(help), "{text}: {said}");
    }
    let listener = "[[listener]]\naddress = \":443\"\ntls = true\n";
    let said = said(&format!("{listener}{}", site("certificate = \"a.pem\"")));
    assert!(said.contains("each certificate needs one key"), "{said}");
    assert!(!said.contains("this listener has no certificate"), "{said}");
}

#[test]
fn configurations_that_hardly_mean_what_they_say_get_a_warning_with_advice() {
    let origin = "proxy = \"http://127.0.0.1:9\"";
    let route = |keys: &str| format!("[[route]]\n{keys}\n");
    let cases = [
        (
            route(&format!("path = \"/api/\"\n{origin}")),
            "write \"/api/*\"",
        ),
        (
            route(&format!("expires = \"30M\"\n{origin}")),
            "write \"10m\" for minutes",
        ),
        (
            format!(
                "[upstream.app]\nservers = [\"http://127.0.0.1:9\"]\n{}",
                route("proxy = \"http://app\"")
            ),
            "write `proxy = \"app\"`: \"http://app\" is a server with this host name",
        ),
        (
            format!(
                "[cache.a]\n{}",
                route(&format!(
                    "cache = \"a\"\nallow_methods = [\"GET\"]\ninvalidate_on = [\"POST\"]\n{origin}"
                ))
            ),
            "`allow_methods` refuses this method",
        ),
    ];
    for (text, help) in cases {
        let said = said(&text);
        assert!(said.contains(help), "{said}");
    }
    for keys in [
        format!("path = \"/\"\n{origin}"),
        "path = \"/a/\"\nredirect = \"/b/\"".to_owned(),
        format!("path = \"/a/\"\n{origin}\n[[route]]\npath = \"/a/*\"\n{origin}"),
    ] {
        assert_eq!(said(&route(&keys)), "\n");
    }
}

#[test]
fn syntax_errors_that_beginners_make_are_answered_with_the_fix() {
    let cases = [
        "[[route]]\npath_regex = \"\\.mp4$\"\n",
        "listen = \":80\";\n",
        "proxy = http://a\n",
        "listen 8080\n",
        "listen = 127.0.0.1:80\n",
        "[[route]\npath = \"/a\"\n",
        "listen = [\"a\" \"b\"]\n",
        "a = True\n",
        "a = 1 b = 2\n",
        "user www-data;\nhttp {\n  server {\n    listen 80;\n  }\n}\n",
    ];
    let said: String = cases.iter().map(|text| said(text)).collect();
    insta::assert_snapshot!("syntax_errors", said);
}

#[test]
fn the_section_of_a_route_in_the_other_form_is_answered_with_its_form() {
    let cases = [
        "[[route]]\npath = \"/a/*\"\n[site.route.files]\nroot = \"/tmp\"\n[[route]]\nrespond = \"x\"\n",
        "[[site]]\n[[site.route]]\npath = \"/a/*\"\n[route.files]\nroot = \"/tmp\"\n",
        "[[site]]\n[[site.route]]\npath = \"/a/*\"\n[files]\nroot = \"/tmp\"\n",
        "[[route]]\n[[route.files]]\nroot = \"/tmp\"\n",
        "[[route]]\nrespond = \"x\"\n[files]\nroot = \"/tmp\"\n[compress]\ngzip = true\n",
        "[cache.main]\nproxy = \"a\"\n[[route]]\nrespond = \"x\"\n",
    ];
    let said: String = cases.iter().map(|text| said(text)).collect();
    insta::assert_snapshot!("other_form", said);
}

#[test]
fn values_and_keys_of_other_programs_are_answered_with_the_fix() {
    let cases = [
        "[admin]\nlisten = \"127.0.0.1:1\"\nallow = \"127.0.0.1\"\n",
        "listen = \"8080\"\n",
        "listen = \"example.com:80\"\n",
        "listen = \"443 ssl\"\n",
        "[[listener]]\naddress = \"443 ssl\"\n",
        "[[route]]\nexpires = 3600\npath = [\"/a/*\", \"/b/*\"]\n",
        "[log]\naccess = true\n",
        "[volume.a]\nmax_size = \"1g\"\n[cache.a]\nmax_size = \"1g\"\n",
        "[[route]]\nproxy_buffering = false\nauth_basic = \"x\"\nesi = true\nfill = \"slice\"\nunheard = 1\n",
        "[[route]]\nrespond = \"x\"\nallow = \"all\"\n",
    ];
    let said: String = cases.iter().map(|text| said(text)).collect();
    insta::assert_snapshot!("values_of_others", said);
}

#[test]
fn settings_of_upstreams_of_other_programs_are_answered_with_the_fix() {
    let of_upstream = |keys: &str| format!("[upstream.o]\nservers = \"http://a\"\n{keys}\n");
    let server = |keys: &str| format!("[upstream.o]\nservers = [{{ {keys} }}]\n");
    let cases = [
        of_upstream("max_conns = 5"),
        server("url = \"http://a\", max_conns = 5"),
        server("address = \"127.0.0.1:9000\""),
        server("url = \"http://a\", disabled = true"),
        of_upstream("balance = \"least_conn\""),
        of_upstream("balance = \"leastconn\""),
        of_upstream("balance = \"ip_hash\""),
        of_upstream("health = { uri = \"/\", rise = 1, fall = 2 }"),
        of_upstream("tls = { sni = \"a\" }\nretry = { attempts = 2 }"),
        of_upstream("hedge = true\nhealth = true\neject = true"),
        "[log]\nformat = '{upstream_addr} {status}'\n".to_owned(),
        "[log]\nformat = '{remote_addr} {status}'\n".to_owned(),
        "[[route]]\nretry = { tries = 2 }\n".to_owned(),
        "upstream o {\n  server 127.0.0.1:9000;\n}\n".to_owned(),
        "upstream o { server 127.0.0.1:9000; }\n".to_owned(),
    ];
    let said: String = cases.iter().map(|text| said(text)).collect();
    insta::assert_snapshot!("upstreams_of_others", said);
}

#[test]
fn options_of_upstreams_without_effect_get_a_warning() {
    let with = |upstream: &str, route: &str| {
        let cache = if route.is_empty() {
            ""
        } else {
            "[cache.main]\n"
        };
        let servers = "[upstream.o]\nservers = [\"http://a\", \"http://b\"]\n";
        format!("{cache}{servers}{upstream}\n[[route]]\nproxy = \"o\"\n{route}\n")
    };
    let cached = "cache = \"main\"";
    let cases = [
        with("sticky = { cookie = \"server\" }", cached),
        with("balance = { hash = \"{cookie:user}\" }", cached),
        with("balance = { hash = \"{header:X-User}\" }", cached),
        with("health = { timeout = \"10s\", interval = \"1s\" }", ""),
        with("retry = { on = [\"connect\", \"timeout\"] }", ""),
        with(
            "retry = { on = \"timeout\", total = \"2s\" }\nread_timeout = \"2s\"",
            "",
        ),
        with("retry = { on = \"timeout\" }\nread_timeout = \"9s\"", ""),
        with("retry = { tries = 3 }", ""),
        with("retry = { on = \"connect\" }", ""),
        with("retry = { on = \"timeout\", tries = 1 }", ""),
    ];
    let said: String = cases.iter().map(|text| super::said(text)).collect();
    insta::assert_snapshot!("upstreams_without_effect", said);
    let both = format!("{cached}\npath = \"/a/*\"\n[[route]]\nproxy = \"o\"");
    for text in [
        with("sticky = { cookie = \"server\" }", &both),
        with("balance = { hash = \"{cookie:user}\" }", ""),
        with("balance = { hash = \"{host}{path}\" }", cached),
        with(
            "balance = { hash = \"{cookie:user}\" }",
            &format!("{cached}\nkey = \"{{scheme}}{{host}}{{path}}{{query}}{{cookie:user}}\""),
        ),
        with(
            "balance = { hash = \"{header:X-User}\" }",
            &format!("{cached}\nforward_headers = \"x-user\""),
        ),
        with("health = { timeout = \"1s\", interval = \"1s\" }", ""),
    ] {
        assert_eq!(super::said(&text), "\n", "{text}");
    }
}

#[test]
fn variables_of_nginx_are_warned_about_where_they_are_literal_text() {
    let cases = [
        "[[route]]\nredirect = \"https://$host$request_uri\"\n",
        "[[route]]\nrespond = \"x\"\nresponse_headers = { set = { A = \"$upstream_cache_status\", B = \"a ${http_x_a}\" } }\n",
        "[[route]]\nfiles = { root = \"/tmp\", try_files = [\"$uri.html\", \"=404\"] }\n",
        "[cache.a]\nkey = \"$host{path}\"\n[[route]]\nproxy = \"http://127.0.0.1:9\"\ncache = \"a\"\n",
        "[log]\naccess = \"-\"\nformat = '{status} $remote_addr $http_x_a'\n[[route]]\nrespond = \"x\"\n",
    ];
    let said: String = cases.iter().map(|text| said(text)).collect();
    insta::assert_snapshot!("variables_of_nginx", said);
    let plain = said_of_header("costs $5, or $US 6, or a $ alone, $unknown");
    assert_eq!(plain.trim(), "");
}

fn said_of_header(value: &str) -> String {
    said(&format!(
        "[[route]]\nrespond = \"x\"\nresponse_headers = {{ set = {{ A = {value:?} }} }}\n"
    ))
}
