//! The program under test: with every kind of thing that the admin API shows, and some traffic.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use sluice_lab::client;
use sluice_lab::origin::Origin;
use tempfile::TempDir;

use crate::disks::Disks;
use crate::harness::{Edge, Setup, eventually, fresh, origin};

/// Name with a certificate of the program's own authority.
pub const SECURE: &str = "secure.example";

/// Name whose certificate an authority is to issue that does not answer.
pub const PENDING: &str = "pending.example";

/// Routes before that of the cache.
const ROUTES: &str = r#"
[[site.route]]
path = "/gated/*"
proxy = "origin"
cache = "main"
deny = ["192.0.2.0/24"]
allow_methods = ["GET"]
limit = { requests = "1000000/s", burst = 1000000 }
[[site.route]]
path = "/signed/*"
proxy = "origin"
cache = "main"
signed_urls = { keys = ["0123456789abcdef"] }
[[site.route]]
path = "/old/*"
redirect = { to = "/new{path}{query}", status = 308 }
[[site.route]]
path = "/fixed"
respond = "fixed"
[[site.route]]
path = "/spare/*"
proxy = "spare"
cache = "small"
compress = true
rewrite = [["^/spare/(.*)$", "/c/$1"]]
request_headers = { set = { x-edited = "yes" } }
"#;

/// The running program with its origin and folders.
pub struct Site {
    /// The program.
    pub edge: Edge,
    /// Address of the origin, which is a server of both upstreams.
    pub server: String,
    _origin: Origin,
    _disks: Disks,
    _folder: TempDir,
}

/// Returns a text in percent-encoding.
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn setup(origin: &Origin, disks: &Disks, folder: &TempDir) -> Setup {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let tables = format!(
        "[cache.small]\nmemory = \"8MiB\"\n\
         [upstream.spare]\nservers = [\"http://{}\", \"http://127.0.0.1:9\"]\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\ntls = true\n\
         [tls.acme]\nstate = {:?}\ndirectory = \"https://127.0.0.1:9/directory\"\n\
         [[site]]\nhosts = [{SECURE:?}]\ntls = \"internal\"\n[[site.route]]\nrespond = \"secure\"\n\
         [[site]]\nhosts = [{PENDING:?}]\ntls = \"auto\"\n[[site.route]]\nrespond = \"pending\"\n",
        origin.addr(),
        path("state")
    );
    let text = disks.setup(origin).tables(&tables).text();
    let files = format!(
        "[[site.route]]\npath = \"/files/*\"\nfiles = {{ root = {:?}, strip_prefix = \"/files\" }}\n",
        path("www")
    );
    let first = "[[site]]\n";
    Setup::of_text(text.replacen(first, &format!("{first}{files}{ROUTES}"), 1))
}

impl Site {
    /// Starts the program, sends some requests, and waits until the admin API shows them.
    pub fn start() -> Site {
        let origin = origin();
        origin.serve("/c/a", fresh(5000).header("Surrogate-Key", "news"));
        origin.serve("/c/vary", fresh(100).vary("Accept-Language"));
        origin.serve("/c/large", fresh(900_000));
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("www")).expect("a folder");
        std::fs::write(folder.path().join("www/a.txt"), "hello, world").expect("written");
        let disks = Disks::in_memory(1);
        let edge = setup(&origin, &disks, &folder).start();
        let site = Site {
            edge,
            server: origin.addr().to_string(),
            _origin: origin,
            _disks: disks,
            _folder: folder,
        };
        site.browse();
        site.wait_for_history();
        site
    }

    /// Sends requests of all kinds.
    fn browse(&self) {
        for (target, status) in [
            ("/c/a", 200),
            ("/c/a", 200),
            ("/c/vary", 200),
            ("/spare/a", 200),
            ("/gated/a", 404),
            ("/signed/a", 403),
            ("/files/a.txt", 200),
            ("/files/nothing", 404),
            ("/old/a", 308),
            ("/fixed", 200),
        ] {
            assert_eq!(self.edge.get(target, &[]).status, status, "{target}");
        }
        let range = self
            .edge
            .get("/c/large", &[("Range", "bytes=300000-300009")]);
        assert_eq!(range.status, 206);
    }

    /// Waits until every scope has members with a history, and all certificates are there.
    fn wait_for_history(&self) {
        eventually("every scope has a history", || {
            let members = self.json("/members");
            let scopes = members["rings"].as_object().expect("scopes");
            scopes
                .keys()
                .all(|scope| members[scope].as_array().is_some_and(|all| !all.is_empty()))
        });
        eventually(
            "the internal certificate is there, and the other one can't be obtained",
            || {
                let all = self.json("/certificates");
                let list = all["list"].as_array().expect("a list");
                let mut secure = list.iter().filter(|one| one["names"][0] == SECURE);
                let has_failed = |one: &Value| one["failures"] == 1 && one["in_progress"] == false;
                secure.any(|one| one["in_use"] == true) && list.iter().any(has_failed)
            },
        );
    }

    /// Returns the JSON of a page.
    pub fn json(&self, target: &str) -> Value {
        let reply = self.edge.get_admin(target);
        serde_json::from_slice(&reply.body).unwrap_or_else(|error| panic!("{target}: {error}"))
    }

    /// Returns the names in a list of a page's JSON.
    pub fn names(&self, target: &str, list: &str) -> Vec<String> {
        let value = self.json(target);
        let names = value[list].as_array().expect("a list").iter();
        names
            .filter_map(|name| Some(name.as_str()?.to_owned()))
            .collect()
    }

    /// Puts all servers into use again.
    pub fn put_servers_up(&self) {
        for upstream in ["origin", "spare"] {
            let server = encoded(&self.server);
            let target = format!("/servers?upstream={upstream}&server={server}&set=up&weight=1");
            let headers = [("x-sluice", "1")];
            let reply = client::once(self.edge.admin, "POST", &target, &headers, b"");
            assert_eq!(reply.expect("an answer").status, 200);
        }
    }

    /// Checks that clients are served, from the cache, an origin and a folder.
    pub fn assert_serves(&self) {
        for target in ["/c/a", "/spare/a", "/c/large", "/files/a.txt", "/fixed"] {
            assert_eq!(self.edge.get(target, &[]).status, 200, "{target}");
        }
    }
}
